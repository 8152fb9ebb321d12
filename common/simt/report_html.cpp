// The annotated listing as one HTML page: no script, no other file.
#include <algorithm>
#include <sstream>

#include "common/simt/listing.hpp"
#include "common/simt/report.hpp"

namespace flash::simt {
namespace {

const char* const style = R"(
:root { color-scheme: light dark; --text: #1f2328; --dim: #656d76; --page: #ffffff; --band: #f3f5f7; --rule: #d5dae0;
  --global: #1f6feb; --shared: #8250df; --bad: #b42318; --bad-page: #ffe9e6; --comment: #57694f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --dim: #99a3ad; --page: #14181d; --band: #1c2229;
  --rule: #343c46; --global: #6cb0ff; --shared: #c79bff; --bad: #ff9a8a; --bad-page: #40201d; --comment: #9fb796; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 1700px; font: 15px/1.45 system-ui, sans-serif; color: var(--text);
  background: var(--page); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 60rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; } th, td { padding: 0 .6rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--dim); background: var(--band); position: sticky; top: 0; }
.totals td { border-top: 1px solid var(--rule); padding: .2rem .6rem; } .left { text-align: left; }
.scroll { overflow-x: auto; }
.listing { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; width: 100%; }
.listing .source { text-align: left; white-space: pre; width: 100%; border-left: 1px solid var(--rule); }
.listing .number { color: var(--dim); }
.listing tr:hover td { background: var(--band); }
.g { color: var(--global); } .s { color: var(--shared); } .e { color: var(--dim); text-align: left; }
.comment { color: var(--comment); }
.bar { display: inline-block; height: .6em; background: currentColor; opacity: .55; border-radius: 2px; }
.barcell { text-align: left; min-width: 62px; padding-right: 0; }
tr.bad td.source { background: var(--bad-page); } td.bad { color: var(--bad); font-weight: 700; }
.mark { color: var(--bad); font-weight: 700; }
)";

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
        case '&':
            result += "&amp;";
            break;
        case '<':
            result += "&lt;";
            break;
        case '>':
            result += "&gt;";
            break;
        case '"':
            result += "&quot;";
            break;
        default:
            result += c;
        }
    }
    return result;
}

/// A line of C++, its comment in another colour.
std::string source_line(const std::string& text) {
    const size_t comment = text.find("//");
    return comment == std::string::npos
               ? escaped(text)
               : escaped(text.substr(0, comment)) + "<span class=comment>" + escaped(text.substr(comment)) + "</span>";
}

std::string size_of(dim3 size) {
    return std::to_string(size.x) + " × " + std::to_string(size.y) + " × " + std::to_string(size.z);
}

GlobalTraffic all_global(const Counters& counters) {
    GlobalTraffic sum = counters.global_load;
    return sum += counters.global_store;
}

SharedTraffic all_shared(const Counters& counters) {
    SharedTraffic sum = counters.shared_load;
    sum += counters.shared_store;
    return sum += counters.async_store;
}

double ratio(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string bar(const char* kind, uint64_t part, uint64_t most) {
    const auto width = static_cast<int>(60 * ratio(part, most) + 0.5);
    return std::string("<td class=\"barcell ") + kind + "\">" +
           (width > 0 ? "<span class=bar style=\"width:" + std::to_string(width) + "px\"></span>" : "") + "</td>";
}

void write_totals(std::ostream& out, const KernelProfile& kernel) {
    out << "<h2>" << escaped(kernel.name) << "</h2>\n<p class=dim>" << size_of(kernel.grid) << " blocks of "
        << size_of(kernel.block) << " threads, " << with_commas(kernel.shared_bytes)
        << " bytes of shared memory a block, " << with_commas(kernel.launches)
        << (kernel.launches == 1 ? " launch" : " launches") << "</p>\n";
    out << "<div class=scroll><table class=totals><tr><th class=left>global memory<th>requests<th>sectors"
           "<th>a request<th>bytes asked for</tr>\n";
    const auto global_row = [&](const std::string& name, const GlobalTraffic& traffic) {
        if (traffic.requests > 0) {
            out << "<tr><td class=left>" << escaped(name) << "<td>" << with_commas(traffic.requests) << "<td>"
                << with_commas(traffic.sectors) << "<td>" << fixed(ratio(traffic.sectors, traffic.requests), 2)
                << "<td>" << with_commas(traffic.bytes) << "</tr>\n";
        }
    };
    global_row("loads", kernel.total.global_load);
    global_row("stores", kernel.total.global_store);
    for (const BufferTraffic& buffer : kernel.buffers) {
        const std::string name = buffer.name + " (" + with_commas(buffer.bytes) + " bytes)";
        global_row("loads of " + name, buffer.load);
        global_row("stores to " + name, buffer.store);
    }
    out << "<tr><th class=left>shared memory<th>requests<th>wavefronts<th>ideal<th>ways</tr>\n";
    const auto shared_row = [&](const char* name, const SharedTraffic& traffic) {
        if (traffic.requests > 0) {
            out << "<tr><td class=left>" << name << "<td>" << with_commas(traffic.requests) << "<td>"
                << with_commas(traffic.wavefronts) << "<td>" << with_commas(traffic.ideal) << "<td>"
                << fixed(ways(traffic), 2) << "</tr>\n";
        }
    };
    shared_row("loads", kernel.total.shared_load);
    shared_row("stores", kernel.total.shared_store);
    shared_row("cp.async writes", kernel.total.async_store);
    out << "</table></div>\n";
    if (const std::string text = events(kernel.total); !text.empty()) {
        out << "<p>" << text << "</p>\n";
    }
}

void write_listing(std::ostream& out, const Listing& listing) {
    uint64_t most_sectors = 0;
    uint64_t most_wavefronts = 0;
    for (const ListedLine& line : listing.lines) {
        most_sectors = std::max(most_sectors, all_global(line.counters).sectors);
        most_wavefronts = std::max(most_wavefronts, all_shared(line.counters).wavefronts);
    }
    out << "<h2>" << escaped(listing.file) << (listing.readable ? "" : " (cannot be read here)") << "</h2>\n"
        << "<div class=scroll><table class=listing><tr><th colspan=2>global sectors<th>a request<th colspan=2>shared "
           "wavefronts<th>ways<th class=left>also<th>line<th class=left>source</tr>\n";
    for (const ListedLine& line : listing.lines) {
        const GlobalTraffic global = all_global(line.counters);
        const SharedTraffic shared = all_shared(line.counters);
        const Findings found = findings(line.counters);
        out << (found.conflicted || found.uncoalesced ? "<tr class=bad>" : "<tr>");
        out << bar("g", global.sectors, most_sectors) << "<td class=g>"
            << (global.requests > 0 ? with_commas(global.sectors) : "") << "<td class=\""
            << (found.uncoalesced ? "bad" : "g") << "\">"
            << (global.requests > 0 ? fixed(ratio(global.sectors, global.requests), 1) : "");
        out << bar("s", shared.wavefronts, most_wavefronts) << "<td class=s>"
            << (shared.requests > 0 ? with_commas(shared.wavefronts) : "") << "<td class=\""
            << (found.conflicted ? "bad" : "s") << "\">" << (shared.requests > 0 ? fixed(ways(shared), 2) : "");
        out << "<td class=e>" << (found.uncoalesced ? "<span class=mark>uncoalesced</span> " : "")
            << (found.conflicted ? "<span class=mark>bank conflicts</span> " : "") << events(line.counters)
            << "<td class=number>" << line.number << "<td class=source>" << source_line(line.text) << "</tr>\n";
    }
    out << "</table></div>\n";
}

} // namespace

std::string annotated_html(const std::string& title, const std::vector<KernelProfile>& kernels) {
    std::ostringstream out;
    out << "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
        << "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>" << escaped(title)
        << ": memory traffic by line</title>\n<style>" << style << "</style>\n<h1>" << escaped(title)
        << ": memory traffic by line</h1>\n"
        << "<p>Counted while the kernel ran on the CPU, as written: a GPU's compiler may keep a value in a register "
           "and "
           "save an access of shared memory. A <b class=g>sector</b> is 32 bytes of global memory; a request is one "
           "instruction of a warp, and 4 sectors a request are ideal when each lane takes 4 bytes, 16 when it takes "
           "16. "
           "A <b class=s>wavefront</b> is one pass through the 32 banks of shared memory; <b>ways</b> are wavefronts "
           "over "
           "those needed without conflict, 1.00 at best. <span class=mark>Red</span> marks more than "
           "1.1 ways, and more than 1.3 times the sectors that the bytes fill.</p>\n";
    for (const KernelProfile& kernel : kernels) {
        write_totals(out, kernel);
    }
    for (const Listing& listing : listings(kernels)) {
        write_listing(out, listing);
    }
    out << "</html>\n";
    return out.str();
}

} // namespace flash::simt
