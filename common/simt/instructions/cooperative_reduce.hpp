// Cooperative groups' reduce and scans. Apart, because a program that does not ask for them may
// have functions of these names.
#pragma once

#include <bit>

#include "common/simt/instructions/cooperative_groups.hpp"

namespace cooperative_groups {

template <class T> struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <class T> struct less { // CUDA's name for the smaller of two
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T> struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T> struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <class T> struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <class T> struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};

/// What all members' values come to, for all of them; by shuffles, as on a GPU.
template <class Group, class T, class Operation>
T reduce(const Group& group, T value, Operation operation, Location location = Location::here()) {
    const unsigned size = group.size();
    const unsigned rank = group.thread_rank();
    for (unsigned distance = std::bit_ceil(size) / 2; distance > 0; distance /= 2) {
        const T other = group.shfl_down(value, distance, location);
        value = rank + distance < size ? operation(value, other) : value;
    }
    return group.shfl(value, 0, location);
}

template <class Group, class T, class Operation = plus<T>>
T inclusive_scan(const Group& group, T value, Operation operation = {},
                 Location location = Location::here()) {
    const unsigned rank = group.thread_rank();
    for (unsigned distance = 1; distance < group.size(); distance *= 2) {
        const T other = group.shfl_up(value, distance, location);
        value = rank >= distance ? operation(other, value) : value;
    }
    return value;
}
template <class Group, class T, class Operation = plus<T>>
T exclusive_scan(const Group& group, T value, Operation operation = {},
                 Location location = Location::here()) {
    const T with_own = inclusive_scan(group, value, operation, location);
    const T before = group.shfl_up(with_own, 1, location);
    return group.thread_rank() == 0 ? T{} : before;
}

} // namespace cooperative_groups
