// K and V go round from GPU to GPU, by NCCL.
#include <nccl.h>

#include <string>

#include "common/cuda/launch/error.hpp"
#include "common/cuda/launch/stream.hpp"
#include "common/processes/mpi.hpp"
#include "common/processes/processes.hpp"

namespace flash {
namespace {

void check_nccl(ncclResult_t result, const char* call) {
    if (result != ncclSuccess) {
        throw Error(std::string(call) + " failed: " + ncclGetErrorString(result) +
                    "\nNCCL_DEBUG=WARN makes NCCL say more");
    }
}

class NcclExchange final : public Exchange {
  public:
    NcclExchange(int rank, int size) : next_((rank + 1) % size), before_((rank + size - 1) % size) {
        ncclUniqueId id{};
        if (rank == 0) {
            check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        }
        MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
        check_nccl(ncclCommInitRank(&ring_, size, id, rank), "ncclCommInitRank");
        // Non-blocking, because a stream that blocks would wait for every kernel on CUDA's default
        // stream. First in line, because a kernel that has all SMs leaves NCCL none.
        int least = 0, greatest = 0;
        FLASH_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        FLASH_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
        FLASH_CHECK_CUDA(cudaEventCreateWithFlags(&before_start_, cudaEventDisableTiming));
        FLASH_CHECK_CUDA(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
    }
    ~NcclExchange() override {
        cudaEventDestroy(arrived_);
        cudaEventDestroy(before_start_);
        cudaStreamDestroy(stream_);
        ncclCommDestroy(ring_);
    }
    NcclExchange(const NcclExchange&) = delete;
    NcclExchange& operator=(const NcclExchange&) = delete;

    void start(const ShardOfKV& now, const RoomForKV& room) override {
        room_ = room;
        FLASH_CHECK_CUDA(cudaEventRecord(before_start_, current_stream));
        // the kernels so far have read what was in the room
        FLASH_CHECK_CUDA(cudaStreamWaitEvent(stream_, before_start_));
        // In a group, because a send waits for the receive on the other side: alone, all ranks
        // would send, and nobody receive.
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        send(now.K, now.bytes);
        send(now.V, now.bytes);
        receive(room.K, room.bytes);
        receive(room.V, room.bytes);
        check_nccl(ncclGroupEnd(), "ncclGroupEnd");
        FLASH_CHECK_CUDA(cudaEventRecord(arrived_, stream_));
    }

    ShardOfKV finish() override {
        // what was to arrive has arrived, and what was sent may be overwritten
        FLASH_CHECK_CUDA(cudaStreamWaitEvent(current_stream, arrived_));
        return {room_.K, room_.V, room_.bytes};
    }

  private:
    void send(const void* data, size_t bytes) {
        if (bytes > 0) {
            check_nccl(ncclSend(data, bytes, ncclChar, next_, ring_, stream_), "ncclSend");
        }
    }
    void receive(void* data, size_t bytes) {
        if (bytes > 0) {
            check_nccl(ncclRecv(data, bytes, ncclChar, before_, ring_, stream_), "ncclRecv");
        }
    }

    int next_, before_;
    ncclComm_t ring_ = nullptr;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t before_start_ = nullptr, arrived_ = nullptr;
    RoomForKV room_ = {};
};

} // namespace

std::unique_ptr<Exchange> make_exchange(int rank, int size) {
    return std::make_unique<NcclExchange>(rank, size);
}

void choose_device(int number) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) { // else the backend says why
        FLASH_CHECK_CUDA(cudaSetDevice(number % devices));
    }
}

} // namespace flash
