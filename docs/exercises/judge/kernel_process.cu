// The process in which a judged kernel runs. It has the problems and their inputs, and nothing
// that would tell what the kernel should answer. A program of scripts/simt, or of nvcc.
//   declare FILE   FILE gets what the kernel says of itself
//   run FOLDER     the problems of FOLDER/problems: N's inputs are the tensors of FOLDER/N.in, one
//                  behind the other; FOLDER/N.out gets all memory around and in outputs, workspace
//                  and inputs, as each run has left it (answers.cpp)
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "attention_judge.h"

#ifdef __NVCC__ // the host cannot read memory of a GPU by its pointers
struct HiddenInputs {
    void add(char*, size_t, size_t) {}
    void hide() {}
    void show() {}
};
static void name_buffer(char*, size_t, size_t, const char*) {}
#else
#include "hidden_inputs.hpp"
#endif

namespace {

constexpr unsigned char canary = 0x5a; // around outputs; NaN, which is 0xff, around inputs
constexpr unsigned char nan_byte = 0xff;

void require(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        std::exit(3);
    }
}

struct Tensor {
    const char* name;
    size_t bytes;
    bool is_input;
    char* device = nullptr; // margin, tensor, margin
};

class Call {
  public:
    Call(AttentionProblem problem, bool backward, size_t margin)
        : problem_(problem), backward_(backward), margin_(margin) {
        const size_t element = problem.type == fp32 ? 4 : 2;
        const size_t rows = size_t(problem.batch) * problem.heads * problem.q_len;
        const size_t q = rows * problem.head_dim * element;
        const size_t kv =
            size_t(problem.batch) * problem.kv_heads * problem.kv_len * problem.head_dim * element;
        const size_t lse = rows * sizeof(float);
        if (backward) {
            tensors_ = {{"Q", q, true},   {"K", kv, true},    {"V", kv, true},
                        {"O", q, true},   {"LSE", lse, true}, {"dO", q, true},
                        {"dQ", q, false}, {"dK", kv, false},  {"dV", kv, false}};
        } else {
            tensors_ = {{"Q", q, true},
                        {"K", kv, true},
                        {"V", kv, true},
                        {"O", q, false},
                        {"LSE", lse, false}};
        }
        tensors_.push_back(
            {"workspace", attention_workspace ? attention_workspace(&problem) : 0, false});
        for (Tensor& one : tensors_) {
            require(cudaMalloc((void**)&one.device, one.bytes + 2 * margin), "cudaMalloc");
            name_buffer(one.device, margin, one.bytes, one.name);
        }
        require(cudaStreamCreate(&stream_), "cudaStreamCreate");
    }
    ~Call() {
        for (const Tensor& one : tensors_) {
            cudaFree(one.device);
        }
        cudaStreamDestroy(stream_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void run(std::istream& inputs, std::ostream& outputs) {
        HiddenInputs hidden;
        for (const Tensor& one : tensors_) {
            std::vector<char> bytes(one.bytes + 2 * margin_,
                                    char(one.is_input ? nan_byte : canary));
            if (one.is_input) {
                inputs.read(bytes.data() + margin_, std::streamsize(one.bytes));
            } else {
                std::fill_n(bytes.data() + margin_, one.bytes, char(nan_byte));
            }
            require(cudaMemcpy(one.device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                    one.name);
            if (one.is_input) {
                hidden.add(one.device, margin_, one.bytes);
            }
        }
        hidden.hide();
        call();
        require(cudaGetLastError(), "a launch");
        require(cudaDeviceSynchronize(), "a kernel");
        hidden.show();
        for (const Tensor& one : tensors_) {
            std::vector<char> bytes(one.bytes + 2 * margin_);
            require(cudaMemcpy(bytes.data(), one.device, bytes.size(), cudaMemcpyDeviceToHost),
                    one.name);
            outputs.write(bytes.data(), std::streamsize(bytes.size()));
        }
    }

  private:
    void* at(size_t n) const { return tensors_[n].device + margin_; }

    void call() {
        void* const workspace = tensors_.back().bytes > 0 ? at(tensors_.size() - 1) : nullptr;
        if (backward_) {
            attention_backward(&problem_, at(0), at(1), at(2), at(3),
                               static_cast<const float*>(at(4)), at(5), at(6), at(7), at(8),
                               workspace, stream_);
        } else {
            attention(&problem_, at(0), at(1), at(2), at(3), static_cast<float*>(at(4)), workspace,
                      stream_);
        }
    }

    AttentionProblem problem_;
    bool backward_;
    size_t margin_;
    std::vector<Tensor> tensors_;
    cudaStream_t stream_ = nullptr;
};

void declare(const char* file) {
    const AttentionTakes& t = attention_takes;
    std::ofstream(file) << "types " << t.types << "\nhead_dims " << t.head_dims << "\nfull "
                        << t.full << "\ncausal " << t.causal << "\ngrouped_heads "
                        << t.grouped_heads << "\nunequal_lengths " << t.unequal_lengths
                        << "\nlength_multiple " << t.length_multiple << "\nany_scale "
                        << t.any_scale << "\nlse " << t.lse << "\nunordered_dq " << t.unordered_dq
                        << "\nforward " << (attention != nullptr) << "\nbackward "
                        << (attention_backward != nullptr) << "\n";
}

void run(const std::string& folder) {
    std::ifstream problems(folder + "/problems");
    AttentionProblem p;
    int number = 0, runs = 0, backward = 0, type = 0;
    size_t margin = 0;
    std::string scale; // hexadecimal, so that no digit is lost
    while (problems >> number >> runs >> backward >> margin >> type >> p.batch >> p.heads >>
           p.kv_heads >> p.q_len >> p.kv_len >> p.head_dim >> scale >> p.causal) {
        p.type = static_cast<AttentionType>(type);
        p.scale = std::strtof(scale.c_str(), nullptr);
        const std::string name = folder + "/" + std::to_string(number);
        std::ofstream outputs(name + ".out", std::ios::binary);
        Call call(p, backward != 0, margin);
        for (int n = 0; n < runs; ++n) {
            std::ifstream inputs(name + ".in", std::ios::binary);
            call.run(inputs, outputs);
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 3 && argv[1] == std::string("declare")) {
        declare(argv[2]);
        return 0;
    }
    if (argc == 3 && argv[1] == std::string("run")) {
        run(argv[2]);
        return 0;
    }
    return 2;
}
