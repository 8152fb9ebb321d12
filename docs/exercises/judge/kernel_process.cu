// The process in which a judged kernel runs. It has problems and their inputs, and nothing that
// would tell what the kernel should answer. A program of scripts/simt, or of nvcc.
//   declare FILE   FILE gets what the kernel says of itself
//   run FOLDER     N.asked, for N from 0 on, holds calls: a line with the problem, then the bytes
//   of
//                  each tensor and of the margins around it. N.answer gets these bytes, as each
//                  call has left them.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "attention_judge.h"

#ifndef __NVCC__
#include "common/simt/machine/device_memory.hpp"
#endif

namespace {

void require(cudaError_t error, const std::string& what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what.c_str(), cudaGetErrorString(error));
        std::exit(3);
    }
}

struct Tensor {
    const char* name;
    size_t bytes;
    char* device = nullptr; // the margin before it
};

/// In the order of answers.cpp.
std::vector<Tensor> tensors_of(const AttentionProblem& p, bool backward) {
    const size_t element = p.type == fp32 ? 4 : 2;
    const size_t rows = size_t(p.batch) * p.heads * p.q_len;
    const size_t keys = size_t(p.batch) * p.kv_heads * p.kv_len;
    const size_t q = rows * p.head_dim * element, kv = keys * p.head_dim * element;
    std::vector<Tensor> all = {
        {"Q", q}, {"K", kv}, {"V", kv}, {"O", q}, {"LSE", rows * sizeof(float)}};
    if (backward) {
        all.insert(all.end(), {{"dO", q}, {"dQ", q}, {"dK", kv}, {"dV", kv}});
    }
    return all;
}

/// With other garbage each time.
void* new_workspace(const AttentionProblem& p) {
    static int calls = 0;
    const size_t bytes = attention_workspace ? attention_workspace(&p) : 0;
    void* workspace = nullptr;
    if (bytes > 0) {
        require(cudaMalloc(&workspace, bytes),
                "a workspace of " + std::to_string(bytes) + " bytes");
        require(cudaMemset(workspace, calls++ % 2 == 0 ? 0xff : 1, bytes), "cudaMemset");
    }
    return workspace;
}

void call(const AttentionProblem& p, bool backward, size_t margin, std::istream& asked,
          std::ostream& answer) {
    std::vector<Tensor> tensors = tensors_of(p, backward);
    std::vector<char> bytes;
    std::vector<void*> at;
    for (Tensor& one : tensors) {
        bytes.resize(one.bytes + 2 * margin);
        asked.read(bytes.data(), std::streamsize(bytes.size()));
        require(cudaMalloc((void**)&one.device, bytes.size()), one.name);
#ifndef __NVCC__ // there kernels may not touch the margins, and messages know names
        flash::simt::memory_around(one.device)->declare(margin, one.bytes, one.name);
#endif
        require(cudaMemcpy(one.device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                one.name);
        at.push_back(one.device + margin);
    }
    void* const workspace = new_workspace(p);
    float* const LSE = static_cast<float*>(at[4]);
    cudaStream_t stream;
    require(cudaStreamCreate(&stream), "cudaStreamCreate");
    if (backward) {
        attention_backward(&p, at[0], at[1], at[2], at[3], LSE, at[5], at[6], at[7], at[8],
                           workspace, stream);
    } else {
        attention(&p, at[0], at[1], at[2], at[3], LSE, workspace, stream);
    }
    require(cudaGetLastError(), "a launch");
    require(cudaDeviceSynchronize(), "a kernel");
    for (const Tensor& one : tensors) {
        bytes.resize(one.bytes + 2 * margin);
        require(cudaMemcpy(bytes.data(), one.device, bytes.size(), cudaMemcpyDeviceToHost),
                one.name);
        answer.write(bytes.data(), std::streamsize(bytes.size()));
        cudaFree(one.device);
    }
    cudaFree(workspace);
    cudaStreamDestroy(stream);
}

void run(const std::string& folder) {
    for (int n = 0;; ++n) {
        const std::string name = folder + "/" + std::to_string(n);
        std::ifstream asked(name + ".asked", std::ios::binary);
        if (!asked) {
            return;
        }
        std::ofstream answer(name + ".answer", std::ios::binary);
        AttentionProblem p;
        int backward, type;
        size_t margin;
        std::string scale; // hexadecimal, so that no digit is lost
        while (asked >> backward >> margin >> type >> p.batch >> p.heads >> p.kv_heads >> p.q_len >>
               p.kv_len >> p.head_dim >> scale >> p.causal) {
            asked.get(); // the end of the line
            p.type = static_cast<AttentionType>(type);
            p.scale = std::strtof(scale.c_str(), nullptr);
            call(p, backward != 0, margin, asked, answer);
        }
    }
}

void declare(const char* file) {
    const AttentionTakes t = &attention_takes ? attention_takes : AttentionTakes();
    std::ofstream(file) << "types " << t.types << "\nhead_dims " << t.head_dims << "\nfull "
                        << t.full << "\ncausal " << t.causal << "\ngrouped_heads "
                        << t.grouped_heads << "\nunequal_lengths " << t.unequal_lengths
                        << "\nlength_multiple " << t.length_multiple << "\nany_scale "
                        << t.any_scale << "\nlse " << t.lse << "\nrounded_sums " << t.rounded_sums
                        << "\nunordered_dq " << t.unordered_dq << "\nattention "
                        << (attention != nullptr) << "\nattention_backward "
                        << (attention_backward != nullptr) << "\n";
}

} // namespace

int main(int argc, char** argv) {
    const std::string verb = argc == 3 ? argv[1] : "";
    if (verb == "declare") {
        declare(argv[2]);
    } else if (verb == "run") {
        run(argv[2]);
    } else {
        return 2;
    }
}
