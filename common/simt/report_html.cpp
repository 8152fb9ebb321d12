// The annotated listing as one HTML page: no script, no other file.
#include <algorithm>
#include <sstream>

#include "common/simt/listing.hpp"
#include "common/simt/report.hpp"

namespace flash::simt {
namespace {

const char* const style = R"(
:root { color-scheme: light dark; --text: #1f2328; --dim: #59636e; --page: #ffffff; --band: #f3f5f7; --rule: #d5dae0;
  --global: #0a58ca; --global-bar: #cfe2ff; --shared: #6f3cc3; --shared-bar: #e6d8fb; --bad: #b42318;
  --bad-page: #ffe9e6; --comment: #57694f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --dim: #99a3ad; --page: #14181d; --band: #1c2229;
  --rule: #343c46; --global: #8cc0ff; --global-bar: #1d3a5f; --shared: #d0acff; --shared-bar: #41295f; --bad: #ff9a8a;
  --bad-page: #40201d; --comment: #9fb796; } }
body { margin: 0; padding: 1.5rem; font: 15px/1.45 system-ui, sans-serif; color: var(--text);
  background: var(--page); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 60rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; } th, td { padding: 0 .6rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--dim); background: var(--band); }
.scroll { overflow-x: auto; }
.totals { margin-top: 1rem; } .totals td { border-top: 1px solid var(--rule); padding: .15rem .6rem; }
.totals .left, .left { text-align: left; } a { color: inherit; }
.listing, .code { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.listing th { position: sticky; top: 0; z-index: 1; border-bottom: 1px solid var(--rule); }
.listing .source { text-align: left; white-space: pre; padding-right: 2rem; border-left: 1px solid var(--rule); }
.listing .number, .e { color: var(--dim); } .e { text-align: left; }
.listing tr:hover td.source, .listing tr:target td.source { background: var(--band); }
.listing tr { scroll-margin-top: 40vh; } tr:target .number { color: var(--text); font-weight: 700; }
.g { color: var(--global); } .s { color: var(--shared); } .comment { color: var(--comment); }
td.g[style] { background: linear-gradient(to left, var(--global-bar) var(--part), transparent var(--part)); }
td.s[style] { background: linear-gradient(to left, var(--shared-bar) var(--part), transparent var(--part)); }
.listing tr.bad td.source { background: var(--bad-page); } .bad, .mark { color: var(--bad); font-weight: 700; }
tr.bad { color: inherit; font-weight: inherit; }
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

double ratio(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(double part) { return fixed(100 * part, part < 0.01 ? 1 : 0) + "%"; }

/// A count with a bar behind it, as long as its part of the largest one; empty when nothing was counted.
std::string bar(const char* kind, uint64_t requests, uint64_t count, uint64_t most, const std::string& detail) {
    if (requests == 0) {
        return "<td>";
    }
    return std::string("<td class=") + kind + " style=\"--part:" + fixed(100 * ratio(count, most), 0) + "%\" title=\"" +
           detail + "\">" + with_commas(count);
}

/// What a pointer that rests on a count is shown.
std::string detail_of(const Counters& line, bool global) {
    std::string text;
    const auto add = [&](const char* name, uint64_t requests, uint64_t count, uint64_t ideal, const char* unit) {
        if (requests > 0) {
            text += (text.empty() ? "" : "; ") + std::string(name) + ": " + with_commas(requests) + " requests, " +
                    with_commas(count) + " " + unit + ", " + with_commas(ideal) + " at best";
        }
    };
    const auto add_global = [&](const char* name, const GlobalTraffic& traffic) {
        add(name, traffic.requests, traffic.sectors, traffic.ideal, "sectors");
    };
    const auto add_shared = [&](const char* name, const SharedTraffic& traffic) {
        add(name, traffic.requests, traffic.wavefronts, traffic.ideal, "wavefronts");
    };
    if (global) {
        add_global("loads", line.global_load);
        add_global("stores", line.global_store);
    } else {
        add_shared("loads", line.shared_load);
        add_shared("stores", line.shared_store);
        add_shared("cp.async writes", line.async_store);
    }
    return text;
}

std::string marks(const Findings& found) {
    return std::string(found.uncoalesced ? "<span class=mark>uncoalesced</span> " : "") +
           (found.conflicted ? "<span class=mark>bank conflicts</span> " : "");
}

std::string sectors_a_request(const Counters& line, const Findings& found) {
    const GlobalTraffic global = all_global(line);
    return std::string("<td class=") + (found.uncoalesced ? "bad" : "g") + ">" +
           (global.requests > 0 ? fixed(ratio(global.sectors, global.requests), 1) : "");
}

std::string ways_of(const Counters& line, const Findings& found) {
    const SharedTraffic shared = all_shared(line);
    return std::string("<td class=") + (found.conflicted ? "bad" : "s") + ">" +
           (shared.requests > 0 ? fixed(ways(shared), 2) : "");
}

/// The name by which a link finds a line of the listings.
std::string anchor(size_t listing, int line) { return "L" + std::to_string(listing + 1) + "-" + std::to_string(line); }

/// The lines that matter, each a link to its place in the listing.
void write_lines(std::ostream& out, const KernelProfile& kernel, const std::vector<Listing>& all) {
    out << "<div class=scroll><table class=totals><tr><th class=left>lines that matter<th>of sectors<th>a request"
           "<th>of wavefronts<th>ways<th class=left></tr>\n";
    for (size_t number = 0; number < all.size(); ++number) {
        for (const ListedLine& listed : all[number].lines) {
            const auto own =
                std::ranges::find(kernel.lines, SourceLine{all[number].file, listed.number}, &LineProfile::line);
            if (own == kernel.lines.end() || !matters(own->counters, kernel.total)) {
                continue;
            }
            const Share share = share_of(own->counters, kernel.total);
            const Findings found = findings(own->counters);
            const size_t begin = std::min(listed.text.find_first_not_of(' '), listed.text.size());
            out << "<tr><td class=left><a href=\"#" << anchor(number, listed.number) << "\">line " << listed.number
                << "</a> &ensp;<span class=code>" << source_line(listed.text.substr(begin)) << "</span><td class=g>"
                << (share.sectors > 0 ? percent(share.sectors) : "") << sectors_a_request(own->counters, found)
                << "<td class=s>" << (share.wavefronts > 0 ? percent(share.wavefronts) : "")
                << ways_of(own->counters, found) << "<td class=left>" << marks(found) << "</tr>\n";
        }
    }
    out << "</table></div>\n";
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

void write_listing(std::ostream& out, const Listing& listing, size_t number) {
    uint64_t most_sectors = 0;
    uint64_t most_wavefronts = 0;
    for (const ListedLine& line : listing.lines) {
        most_sectors = std::max(most_sectors, all_global(line.counters).sectors);
        most_wavefronts = std::max(most_wavefronts, all_shared(line.counters).wavefronts);
    }
    out << "<h2>" << escaped(listing.file) << (listing.readable ? "" : " (cannot be read here)") << "</h2>\n"
        << "<table class=listing><thead><tr><th>sectors<th>a request<th>wavefronts<th>ways<th class=left>also"
           "<th>line<th class=left>source</tr></thead>\n";
    for (const ListedLine& line : listing.lines) {
        const GlobalTraffic global = all_global(line.counters);
        const SharedTraffic shared = all_shared(line.counters);
        const Findings found = findings(line.counters);
        out << (found.conflicted || found.uncoalesced ? "<tr class=bad id=" : "<tr id=") << anchor(number, line.number)
            << ">" << bar("g", global.requests, global.sectors, most_sectors, detail_of(line.counters, true))
            << sectors_a_request(line.counters, found)
            << bar("s", shared.requests, shared.wavefronts, most_wavefronts, detail_of(line.counters, false))
            << ways_of(line.counters, found) << "<td class=e>" << marks(found) << events(line.counters)
            << "<td class=number>" << line.number << "<td class=source>" << source_line(line.text) << "</tr>\n";
    }
    out << "</table>\n";
}

} // namespace

std::string annotated_html(const std::string& title, const std::vector<KernelProfile>& kernels) {
    std::ostringstream out;
    out << "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
        << "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>" << escaped(title)
        << ": memory traffic by line</title>\n<style>" << style << "</style>\n<h1>" << escaped(title)
        << ": memory traffic by line</h1>\n"
        << "<p>Counted while the kernel ran on the CPU, as written: a GPU's compiler may keep a value in a register "
           "and save an access of shared memory. A <b class=g>sector</b> is 32 bytes of global memory; a request is "
           "one instruction of a warp, and 4 sectors a request are ideal when each lane takes 4 bytes, 16 when it "
           "takes 16. A <b class=s>wavefront</b> is one pass through the 32 banks of shared memory; <b>ways</b> are "
           "wavefronts over those needed without conflict, 1.00 at best. <span class=mark>Red</span> marks more than "
           "1.1 ways, and more than 1.3 times the sectors that the bytes fill. A line's loads and stores are counted "
           "together; resting on a number shows them apart.</p>\n";
    const std::vector<Listing> all = listings(kernels);
    for (const KernelProfile& kernel : kernels) {
        write_totals(out, kernel);
        write_lines(out, kernel, all);
    }
    for (size_t number = 0; number < all.size(); ++number) {
        write_listing(out, all[number], number);
    }
    out << "</html>\n";
    return out.str();
}

} // namespace flash::simt
