#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "common/harness/backends/host_memory.hpp"
#include "common/harness/backends/peak_memory.hpp"
#include "common/harness/files/text.hpp"
#include "common/tests/harness/temporary_folder.hpp"

using namespace flash;
using flash::test::TemporaryFolder;

TEST_CASE("available memory is what the system has") {
    const TemporaryFolder root;
    root.file("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n");
    CHECK(available_host_memory(root / "") == 4000 * 1024);
    CHECK(available_host_memory() > 0);
}

TEST_CASE("a container's limit counts, in the group or any group above it") {
    const TemporaryFolder root;
    root.file("proc/meminfo", "MemAvailable: 4000000 kB\n");
    root.file("proc/self/cgroup", "0::/outer/inner\n");
    root.file("sys/fs/cgroup/outer/inner/memory.max", "max\n");
    root.file("sys/fs/cgroup/outer/inner/memory.current", "1000\n");
    CHECK(available_host_memory(root / "") == 4000000u * 1024);
    root.file("sys/fs/cgroup/outer/memory.max", "1000000\n");
    root.file("sys/fs/cgroup/outer/memory.current", "300000\n");
    CHECK(available_host_memory(root / "") == 700000);
    root.file("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 100000\nactive_file 7\n");
    CHECK(available_host_memory(root / "") == 800000); // cached file contents make room when asked
    root.file("sys/fs/cgroup/outer/inner/memory.max", "1500\n");
    CHECK(available_host_memory(root / "") == 500);
    root.file("sys/fs/cgroup/outer/memory.current", "2000000\n"); // above its limit for a moment
    CHECK(available_host_memory(root / "") == 0);
}

TEST_CASE("a container's limit counts in the first version of control groups, too") {
    const TemporaryFolder root;
    root.file("proc/meminfo", "MemAvailable: 4000000 kB\n");
    root.file("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/box\n0::/\n");
    root.file("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "900000\n");
    root.file("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "200000\n");
    CHECK(available_host_memory(root / "") == 700000);
}

TEST_CASE("the peak of memory is measured, not what is left in the end") {
    const auto work = [] {
        std::vector<char> large(40 << 20, 1);
        large.clear();
    };
    work();
    const auto peak = peak_memory_of(work);
    if (!peak) {
        SKIP("this system does not tell the peak of resident memory");
    }
    CHECK(*peak > 39 << 20);
    CHECK(*peak < 60 << 20);
    CHECK(peak_memory_of([] {}).value() < 4 << 20);
}

TEST_CASE("bytes in text") {
    CHECK(format_bytes(0) == "0 bytes");
    CHECK(format_bytes(1023) == "1023 bytes");
    CHECK(format_bytes(1536) == "1.5 KiB");
    CHECK(format_bytes(3.2 * 1024 * 1024 * 1024) == "3.2 GiB");
    CHECK(format_bytes(1e30).ends_with(" EiB"));
}
