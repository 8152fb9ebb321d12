// K and V go round in host memory, by MPI: the twin of exchange_nccl.cu on the SIMT backend.
#include <vector>

#include "common/processes/mpi.hpp"
#include "common/processes/processes.hpp"
#include "common/simt/language/pointer_check.hpp"

namespace flash {
namespace {

class MpiExchange final : public Exchange {
  public:
    MpiExchange(int rank, int size) : next_((rank + 1) % size), before_((rank + size - 1) % size) {
        // Messages of its own; and all processes have to come here together, as NCCL has it.
        MPI_Comm_dup(MPI_COMM_WORLD, &ring_);
    }
    ~MpiExchange() override { MPI_Comm_free(&ring_); }
    MpiExchange(const MpiExchange&) = delete;
    MpiExchange& operator=(const MpiExchange&) = delete;

    void start(const ShardOfKV& now, const RoomForKV& room) override {
        room_ = room;
        for (void* const tensor : {room.K, room.V}) {
            in_pieces(room.bytes, [&](size_t at, int size) {
                MPI_Irecv(static_cast<char*>(tensor) + at, size, MPI_BYTE, before_, 0, ring_,
                          &requests_.emplace_back());
            });
        }
        for (const void* const tensor : {now.K, now.V}) {
            in_pieces(now.bytes, [&](size_t at, int size) {
                MPI_Isend(static_cast<const char*>(tensor) + at, size, MPI_BYTE, next_, 0, ring_,
                          &requests_.emplace_back());
            });
        }
    }

    ShardOfKV finish() override {
        // what was to arrive has arrived, and what was sent may be overwritten
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
        requests_.clear();
        for (void* const tensor : {room_.K, room_.V}) {
            if (room_.bytes > 0) {
                simt::note_written(tensor, room_.bytes);
            }
        }
        return {room_.K, room_.V, room_.bytes};
    }

  private:
    int next_, before_;
    MPI_Comm ring_{};
    RoomForKV room_ = {};
    std::vector<MPI_Request> requests_;
};

} // namespace

std::unique_ptr<Exchange> make_exchange(int rank, int size) {
    return std::make_unique<MpiExchange>(rank, size);
}

void choose_device(int /*number*/) {}

} // namespace flash
