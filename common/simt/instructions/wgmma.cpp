#include "common/simt/instructions/wgmma.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/simt/instructions/tma.hpp" // swizzle
#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

constexpr uint64_t swizzle_128_bytes = 1, swizzle_64_bytes = 2; // in bits 62 and 63

struct Descriptor {
    char* start;
    size_t leading, stride, row; // bytes
};

[[noreturn]] void refuse(FaultKind kind, const std::string& summary, SourceLocation location) {
    current_block().refuse(kind, summary, "wgmma", location);
}

void check_start(const SharedMemory& shared, const char* start, size_t row_bytes,
                 SourceLocation location) {
    if ((reinterpret_cast<size_t>(start) & (row_bytes == 128 ? 0x380 : 0x180)) != 0) {
        const auto place =
            start - (shared.is_dynamic(start) ? shared.dynamic() : shared.segment().begin);
        refuse(FaultKind::misaligned,
               "misaligned: a tile under the " + std::to_string(row_bytes) +
                   "-byte swizzle begins at a multiple of " + std::to_string(8 * row_bytes) +
                   " bytes, and this operand of wgmma at byte " + std::to_string(place) +
                   " of shared memory",
               location);
    }
}

Descriptor decode(uint64_t bits, SourceLocation location) {
    const SharedMemory& shared = current_block().shared();
    if (bits >> 62 != swizzle_128_bytes && bits >> 62 != swizzle_64_bytes) {
        refuse(FaultKind::invalid_access,
               "a descriptor of wgmma without the 128-byte or the 64-byte swizzle (bits 62 and 63 "
               "are 1, or 2)",
               location);
    }
    const size_t row_bytes = bits >> 62 == swizzle_128_bytes ? 128 : 64;
    char* const start = shared.at_window_address((bits & 0xffff) << 4);
    check_start(shared, start, row_bytes, location);
    return {start, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4, row_bytes};
}

OperandRow row_at(const Descriptor& operand, size_t offset, SourceLocation location) {
    const auto* const row = reinterpret_cast<OperandRow>(
        swizzle(reinterpret_cast<size_t>(operand.start + offset), operand.row));
    const SharedMemory& shared = current_block().shared();
    const bool inside =
        shared.is_dynamic(row)
            ? row >= shared.dynamic() && row + 16 <= shared.dynamic() + shared.dynamic_bytes()
            : shared.is_static(row);
    if (!inside) {
        refuse(FaultKind::out_of_bounds,
               "out of bounds: a descriptor of wgmma leads to byte " +
                   std::to_string(row - shared.dynamic()) + " of the dynamic shared memory (" +
                   plural(shared.dynamic_bytes(), "byte") + ")",
               location);
    }
    return row;
}

/// Rows of A or columns of B, `count` of them from `first` on, with their 16 k, or 32. As a rule k
/// is contiguous: two pieces of 16 bytes for each. Transposed, rows or columns are: 64 of them in
/// 128 bytes, pieces of 8 for each k.
std::vector<OperandRow> rows_of(const Descriptor& operand, unsigned first, unsigned count,
                                bool transposed, SourceLocation location) {
    std::vector<OperandRow> rows;
    for (unsigned k = 0; transposed && k < 16; ++k) {
        for (unsigned piece = first / 8; piece < (first + count) / 8; ++piece) {
            rows.push_back(row_at(operand,
                                  piece / 8 * operand.leading + k / 8 * operand.stride +
                                      k % 8 * 128 + piece % 8 * 16,
                                  location));
        }
    }
    for (unsigned i = first; !transposed && i < first + count; ++i) {
        for (unsigned half = 0; half < 2; ++half) {
            rows.push_back(row_at(operand, i / 8 * operand.stride + i % 8 * operand.row + half * 16,
                                  location));
        }
    }
    return rows;
}

/// Element `k` of row or column `i` of `count`, in what rows_of gave.
template <class T>
float operand_element(const std::vector<OperandRow>& rows, unsigned i, unsigned k, unsigned count,
                      bool transposed) {
    constexpr unsigned piece = 16 / sizeof(T);
    T value;
    std::memcpy(&value,
                transposed ? rows[k * (count / piece) + i / piece] + i % piece * sizeof(T)
                           : rows[i * 2 + k / piece] + k % piece * sizeof(T),
                sizeof value);
    return to_float(value);
}

/// C of the thread as wgmma spreads it: warp w has rows 16 w to 16 w + 15, as the C fragments of
/// mma_m16n8k16.
template <class Use> void for_each_of_thread(unsigned thread, unsigned columns, Use use) {
    const unsigned row = thread / 32 * 16 + thread % 32 / 4;
    for (unsigned i = 0; i < columns / 2; ++i) {
        use(i, (row + 8 * (i % 4 / 2)) * columns + 8 * (i / 4) + 2 * (thread % 4) + i % 2);
    }
}

/// C (+)= A B for a row of C: products of two 16-bit values are exact in fp32; sums are rounded one
/// by one.
template <unsigned k_step>
void multiply_row(float* C, unsigned columns, bool accumulate, const float (&A)[k_step],
                  const float (&B)[k_step][256]) {
    float sums[256] = {};
    for (unsigned k = 0; k < k_step; ++k) {
        for (unsigned column = 0; column < columns; ++column) {
            sums[column] += A[k] * B[k][column];
        }
    }
    for (unsigned column = 0; column < columns; ++column) {
        C[column] = accumulate ? C[column] + sums[column] : sums[column];
    }
}

/// The same of e4m3, with the width that Hopper's accumulator has: products are exact, but they and
/// C are shifted to the largest exponent among them before they are added, and bits beyond the
/// thirteenth behind the point are lost, as are those of the sum. (Measured by DeepSeek, the report
/// on DeepSeek-V3, 2024, section 3.5.2, "the highest 14 bits"; that the sum is as narrow, by the
/// PyTorch team, who write e8m13. Whether hardware shifts all 32 products at once or in groups, and
/// to which side it cuts, nobody says for Hopper; here all 32, and towards zero.)
void multiply_row_e4m3(float* C, unsigned columns, bool accumulate, const float (&A)[32],
                       const float (&B)[32][256]) {
    constexpr uint32_t bits_behind_point = 13, exponent = 0x7f800000;
    float largest[256], plain[256];
    for (unsigned column = 0; column < columns; ++column) {
        C[column] = accumulate ? C[column] : 0;
        largest[column] = std::abs(C[column]);
        plain[column] = C[column]; // NaN and infinity, if there are any
    }
    for (unsigned k = 0; k < 32; ++k) {
        for (unsigned column = 0; column < columns; ++column) {
            const float term = A[k] * B[k][column];
            largest[column] = std::max(largest[column], std::abs(term));
            plain[column] += term;
        }
    }
    float units[256]; // how many of the smallest that are kept make 1
    int32_t sums[256];
    for (unsigned column = 0; column < columns; ++column) {
        const uint32_t top =
            std::max(std::bit_cast<uint32_t>(largest[column]) & exponent, 14u << 23);
        units[column] = std::bit_cast<float>(((254u + bits_behind_point) << 23) - top);
        sums[column] =
            static_cast<int32_t>(std::isfinite(plain[column]) ? C[column] * units[column] : 0);
    }
    for (unsigned k = 0; k < 32; ++k) {
        for (unsigned column = 0; column < columns; ++column) {
            const float term = std::isfinite(plain[column]) ? A[k] * B[k][column] : 0;
            sums[column] += static_cast<int32_t>(term * units[column]); // cut towards zero
        }
    }
    for (unsigned column = 0; column < columns; ++column) {
        const float sum = static_cast<float>(sums[column]) / units[column]; // exact
        const uint32_t kept =
            std::bit_cast<uint32_t>(sum) & ~((1u << (23 - bits_behind_point)) - 1);
        C[column] = std::isfinite(plain[column]) ? std::bit_cast<float>(kept) : plain[column];
    }
}

template <class T> void multiply(const Wgmma& product, float* C) {
    constexpr unsigned k_step = 32 / sizeof(T);
    const unsigned columns = product.columns;
    static thread_local float A[64][k_step];
    static thread_local float B[k_step][256];
    if (product.fragments.empty()) {
        for (unsigned row = 0; row < 64; ++row) {
            for (unsigned k = 0; k < k_step; ++k) {
                A[row][k] =
                    operand_element<T>(product.A[row / 16], row % 16, k, 16, product.A_transposed);
            }
        }
    } else {
        constexpr unsigned held = 4 / sizeof(T); // by a register
        for (unsigned thread = 0; thread < warpgroup_threads; ++thread) {
            const unsigned row = thread / 32 * 16 + thread % 32 / 4;
            for (unsigned i = 0; i < 4; ++i) {
                T elements[held];
                std::memcpy(elements, &product.fragments[thread][i], 4);
                float* const to = &A[row + 8 * (i % 2)][held * (thread % 4) + k_step / 2 * (i / 2)];
                std::ranges::transform(elements, to, [](T x) { return to_float(x); });
            }
        }
    }
    for (unsigned k = 0; k < k_step; ++k) {
        for (unsigned column = 0; column < columns; ++column) {
            B[k][column] = operand_element<T>(product.B, column, k, columns, product.B_transposed);
        }
    }
    for (unsigned row = 0; row < 64; ++row) {
        float* const own = C + row * columns;
        if constexpr (dtype_of<T> == DType::e4m3) {
            multiply_row_e4m3(own, columns, product.accumulate, A[row], B);
        } else {
            multiply_row(own, columns, product.accumulate, A[row], B);
        }
    }
}

Accumulators& accumulators_of(TensorCores& cores, const Wgmma& product) {
    return *std::ranges::find_if(cores.accumulators,
                                 [&](const Accumulators& one) { return one.C == product.C; });
}

void execute(TensorCores& cores, const Wgmma& product) {
    float* const C = accumulators_of(cores, product).values.data();
    product.type == DType::fp16   ? multiply<Half>(product, C)
    : product.type == DType::bf16 ? multiply<Bfloat16>(product, C)
                                  : multiply<E4m3>(product, C);
}

void hand_out(Accumulators& from, unsigned thread) {
    for_each_of_thread(thread, from.columns,
                       [&](unsigned i, unsigned place) { from.C[thread][i] = from.values[place]; });
    from.handed_out.set(thread);
}

/// The registers of a product that none under way uses: their values go to the tensor cores.
void gather(TensorCores& cores, const Wgmma& product) {
    Accumulators made{product.C, product.columns, std::vector<float>(64 * product.columns), 0, {}};
    for (unsigned thread = 0; thread < warpgroup_threads; ++thread) {
        for_each_of_thread(thread, product.columns, [&](unsigned i, unsigned place) {
            made.values[place] = made.C[thread][i];
            made.C[thread][i] = std::numeric_limits<float>::quiet_NaN(); // until somebody waits
        });
    }
    cores.accumulators.push_back(std::move(made));
}

/// All threads of the warpgroup have come: begins the product.
void begin(unsigned first_thread, const WarpgroupOperands& operands, SourceLocation location) {
    Block& block = current_block();
    const auto call = [&](unsigned thread) -> const WgmmaCall& {
        return *static_cast<const WgmmaCall*>(operands[thread]);
    };
    const WgmmaCall& one = call(0);
    Wgmma product;
    product.work = block.new_work("wgmma", location, 4);
    product.work.thread = first_thread;
    WgmmaState& state = block.state<WgmmaState>();
    product.group = state.groups[first_thread].committed;
    product.type = one.type;
    product.columns = one.columns;
    product.accumulate = one.accumulate;
    product.A_transposed = one.A_transposed;
    product.B_transposed = one.B_transposed;
    for (unsigned thread = 0; thread < warpgroup_threads; ++thread) {
        const WgmmaCall& own = call(thread);
        WgmmaGroups& groups = state.groups[first_thread + thread];
        if (own.columns != one.columns || own.A != one.A || own.B != one.B ||
            own.accumulate != one.accumulate || groups.committed != product.group) {
            refuse(FaultKind::divergent_barrier,
                   "threads of one warpgroup call wgmma with different operands or after different "
                   "numbers of commits",
                   location);
        }
        groups.begun = location;
        groups.open = product.group + 1;
        product.C[thread] = own.C;
        if (own.fragment != nullptr) {
            product.registers[thread] = own.fragment;
            auto& fragment = product.fragments.emplace_back();
            std::copy_n(own.fragment, 4, fragment.begin());
        }
    }
    if (one.fragment == nullptr) {
        const Descriptor A = decode(one.A, location);
        for (unsigned warp = 0; warp < 4; ++warp) {
            product.A[warp] = rows_of(A, 16 * warp, 16, one.A_transposed, location);
        }
    }
    product.B = rows_of(decode(one.B, location), 0, one.columns, one.B_transposed, location);
    block.observers().tell(&Observer::start_wgmma, product);
    TensorCores& cores = state.cores[first_thread / warpgroup_threads];
    std::erase_if(cores.accumulators, [&](Accumulators& known) { // some have waited, some have not
        return known.handed_out.any() && known.C == product.C;
    });
    if (std::ranges::none_of(cores.accumulators,
                             [&](const Accumulators& known) { return known.C == product.C; })) {
        gather(cores, product);
    }
    accumulators_of(cores, product).last_group = product.group;
    if (options().cp_async == CpAsync::late) {
        cores.pending.push_back(std::move(product));
        return;
    }
    execute(cores, product);
    Accumulators& done = accumulators_of(cores, product);
    for (unsigned thread = 0; thread < warpgroup_threads; ++thread) {
        hand_out(done, thread);
    }
    cores.accumulators.clear();
}

} // namespace

void WgmmaState::check_leaving(Block& block, unsigned thread) const {
    const WgmmaGroups& own = groups[thread];
    if (own.over < own.open) {
        block.stop({FaultKind::wgmma_in_flight,
                    "a thread leaves the kernel before its wgmma is over",
                    block.here("starts it", own.begun),
                    "its accumulators are lost: commit, and wait for all groups (wgmma_wait<0>)"});
    }
}

uint64_t wgmma_descriptor(const void* shared, int leading_bytes, int stride_bytes, int row_bytes,
                          SourceLocation location) {
    const RuntimeCode runtime;
    const auto* const start = static_cast<const char*>(shared);
    const Block& block = current_block();
    if (block.space_of(start) != Space::shared) {
        refuse(FaultKind::out_of_bounds,
               "out of bounds: a descriptor of wgmma for an address outside shared memory",
               location);
    }
    check_start(block.shared(), start, static_cast<size_t>(row_bytes), location);
    const auto field = [](size_t bytes) { return static_cast<uint64_t>(bytes >> 4); };
    return field(block.shared().window_address(start)) |
           field(static_cast<size_t>(leading_bytes) & 0x3ffff) << 16 |
           field(static_cast<size_t>(stride_bytes) & 0x3ffff) << 32 |
           (row_bytes == 128 ? swizzle_128_bytes : swizzle_64_bytes) << 62;
}

void start_wgmma(const WgmmaCall& call, SourceLocation location) {
    const RuntimeCode runtime;
    WgmmaCall own = call;
    current_block().observers().tell(&Observer::instruct, current_block().current().number,
                                     {"wgmma", location});
    current_block().meet_warpgroup("wgmma", location, &own, begin);
}

void wgmma_fence(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"wgmma_fence", location});
    caller.tells(&Observer::fence_wgmma);
}

void wgmma_commit(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"wgmma_commit", location});
    ++caller.block.state<WgmmaState>().groups[caller.thread.number].committed;
}

void wait_wgmma(unsigned in_flight, SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"wgmma_wait", location, nullptr, in_flight});
    const unsigned thread = caller.thread.number;
    WgmmaState& state = caller.block.state<WgmmaState>();
    if (state.groups[thread].committed <= in_flight) {
        return;
    }
    const uint32_t groups = state.groups[thread].committed - in_flight;
    state.groups[thread].over = groups;
    TensorCores& cores = state.cores[thread / warpgroup_threads];
    const auto end =
        std::ranges::find_if(cores.pending, [&](const Wgmma& one) { return one.group >= groups; });
    std::for_each(cores.pending.begin(), end,
                  [&](const Wgmma& product) { execute(cores, product); });
    cores.pending.erase(cores.pending.begin(), end);
    std::erase_if(cores.accumulators, [&](Accumulators& one) {
        const unsigned own = thread % warpgroup_threads;
        if (one.last_group < groups && !one.handed_out.test(own)) {
            hand_out(one, own);
        }
        return one.handed_out.all();
    });
    caller.tells(&Observer::wait_for_wgmma, groups);
}

} // namespace flash::simt
