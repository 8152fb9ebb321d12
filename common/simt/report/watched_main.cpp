// Runs another program's main with its kernels watched: the first fault ends it, and what was
// counted is written when it ends. scripts/simt links this file with --wrap=main, which calls
// __wrap_main in the place of main.
#include <cstdio>
#include <fstream>

#include "common/attention.hpp"
#include "common/simt/machine/program.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"

extern "C" int __real_main(int argc, char** argv);

extern "C" int __wrap_main(int argc, char** argv) {
    namespace simt = flash::simt;
    try {
        simt::options().detect = simt::options().count = true;
        const int code = __real_main(argc, argv);
        std::ofstream(simt::program_file() + ".profile.json") << simt::to_json(simt::profile());
        // else the program has caught a fault itself, or has found a mistake of its own
        if (code == 0) {
            std::printf("no fault found, schedule %s\n",
                        to_string(simt::options().schedule).c_str());
        }
        return code;
    } catch (const flash::KernelFault& fault) {
        std::fprintf(stderr, "%s\n", fault.what());
        return 1;
    } catch (const flash::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
