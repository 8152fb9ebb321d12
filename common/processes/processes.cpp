#include "common/processes/processes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "common/processes/mpi.hpp"

namespace flash {
namespace {

/// Whether a launcher has started this process: Open MPI's, one that speaks PMIx, or MPICH's.
bool was_launched() {
    const auto names = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    return std::ranges::any_of(names,
                               [](const char* name) { return std::getenv(name) != nullptr; });
}

class MpiProcesses final : public Processes {
  public:
    MpiProcesses() {
        // MPI ends all processes when a call of it fails
        MPI_Init(nullptr, nullptr);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        MPI_Comm here{}; // the processes of this computer
        int number = 0;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here);
        MPI_Comm_rank(here, &number);
        MPI_Comm_free(&here);
        choose_device(number);
    }
    ~MpiProcesses() override {
        exchange_.reset();
        MPI_Finalize();
    }
    MpiProcesses(const MpiProcesses&) = delete;
    MpiProcesses& operator=(const MpiProcesses&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    void send(int to, const void* data, size_t bytes) override {
        in_pieces(bytes, [&](size_t at, int size) {
            MPI_Send(static_cast<const char*>(data) + at, size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        });
    }
    void receive(int from, void* data, size_t bytes) override {
        in_pieces(bytes, [&](size_t at, int size) {
            MPI_Recv(static_cast<char*>(data) + at, size, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        });
    }
    void share(void* data, size_t bytes) override {
        in_pieces(bytes, [&](size_t at, int size) {
            MPI_Bcast(static_cast<char*>(data) + at, size, MPI_BYTE, 0, MPI_COMM_WORLD);
        });
    }
    double largest(double value) override {
        double most = value;
        MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return most;
    }
    Exchange& exchange() override {
        if (!exchange_) {
            exchange_ = make_exchange(rank_, size_);
        }
        return *exchange_;
    }
    [[noreturn]] void end_all(int exit_code) override {
        std::fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
        std::_Exit(exit_code); // not reached: MPI_Abort is not declared as not returning
    }

  private:
    int rank_ = 0, size_ = 1;
    std::unique_ptr<Exchange> exchange_;
};

} // namespace

std::unique_ptr<Processes> start_processes() {
    return was_launched() ? std::make_unique<MpiProcesses>() : nullptr;
}

} // namespace flash
