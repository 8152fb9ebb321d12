// Thrust, for the SIMT backend: vectors, pointers, iterators and the usual algorithms. All of its
// headers are this one (cuda_on_cpu/compiling.py). An algorithm on the device is a kernel of one
// thread, which does what the algorithm of C++ does: so functors run where they may touch the
// device's memory, and under the detector.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

#include "common/simt/language/launch_syntax.hpp"

namespace thrust {

// --- memory of the device
// --------------------------------------------------------------------------

/// A number of the device: kernels reach it, and the host copies it.
template <class T> class device_reference {
  public:
    using value_type = std::remove_const_t<T>;
    explicit device_reference(T* at) : at_(at) {}
    device_reference(const device_reference&) = default;
    operator value_type() const {
        if (flash::simt::on_device()) {
            return *at_;
        }
        value_type value;
        cudaMemcpy(&value, at_, sizeof value, cudaMemcpyDeviceToHost);
        return value;
    }
    const device_reference& operator=(const value_type& value) const {
        if (flash::simt::on_device()) {
            *const_cast<value_type*>(at_) = value;
        } else {
            cudaMemcpy(const_cast<value_type*>(at_), &value, sizeof value, cudaMemcpyHostToDevice);
        }
        return *this;
    }
    const device_reference& operator=(const device_reference& other) const {
        return *this = static_cast<value_type>(other);
    }
    const device_reference& operator+=(const value_type& x) const { return *this = *this + x; }
    const device_reference& operator-=(const value_type& x) const { return *this = *this - x; }
    const device_reference& operator*=(const value_type& x) const { return *this = *this * x; }
    const device_reference& operator/=(const value_type& x) const { return *this = *this / x; }
    const device_reference& operator++() const { return *this += value_type(1); }
    T* address() const { return at_; }

  private:
    T* at_;
};

template <class T> class device_ptr {
  public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = std::remove_const_t<T>;
    using difference_type = std::ptrdiff_t;
    using pointer = device_ptr;
    using reference = device_reference<T>;

    device_ptr() = default;
    device_ptr(std::nullptr_t) {}
    explicit device_ptr(T* at) : at_(at) {}
    template <class Other>
    requires std::is_convertible_v<Other*, T*> device_ptr(const device_ptr<Other>& other)
        : at_(other.get()) {}
    T* get() const { return at_; }
    reference operator*() const { return reference(at_); }
    reference operator[](difference_type i) const { return reference(at_ + i); }
    explicit operator bool() const { return at_ != nullptr; }
    device_ptr& operator++() { return ++at_, *this; }
    device_ptr& operator--() { return --at_, *this; }
    device_ptr operator++(int) { return device_ptr(at_++); }
    device_ptr operator--(int) { return device_ptr(at_--); }
    device_ptr& operator+=(difference_type by) { return at_ += by, *this; }
    device_ptr& operator-=(difference_type by) { return at_ -= by, *this; }
    device_ptr operator+(difference_type by) const { return device_ptr(at_ + by); }
    device_ptr operator-(difference_type by) const { return device_ptr(at_ - by); }
    friend device_ptr operator+(difference_type by, device_ptr at) { return at + by; }
    template <class Other> difference_type operator-(const device_ptr<Other>& other) const {
        return at_ - other.get();
    }
    template <class Other> bool operator==(const device_ptr<Other>& other) const {
        return at_ == other.get();
    }
    template <class Other> auto operator<=>(const device_ptr<Other>& other) const {
        return at_ <=> other.get();
    }

  private:
    T* at_ = nullptr;
};

template <class T> T* raw_pointer_cast(const device_ptr<T>& at) { return at.get(); }
template <class T> T* raw_pointer_cast(T* at) { return at; }
template <class T> device_ptr<T> device_pointer_cast(T* at) { return device_ptr<T>(at); }
template <class T> device_ptr<T> device_pointer_cast(const device_ptr<T>& at) { return at; }
template <class T> device_ptr<T> operator&(const device_reference<T>& at) {
    return device_ptr<T>(at.address());
}
template <class T> device_ptr<T> device_malloc(size_t count) {
    T* at = nullptr;
    flash::simt::cuda_malloc(&at, "thrust::device_malloc", count * sizeof(T));
    return device_ptr<T>(at);
}
template <class T> void device_free(device_ptr<T> at) { cudaFree(at.get()); }

// --- iterators
// -------------------------------------------------------------------------------------

/// What random-access iterators have in common: `Derived` has at(i), and moves by `place`.
template <class Derived, class Value, class Reference> struct Iterator {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Reference;
    difference_type place = 0;

    Reference operator*() const { return own().at(place); }
    Reference operator[](difference_type i) const { return own().at(place + i); }
    Derived& operator+=(difference_type by) { return place += by, own(); }
    Derived& operator-=(difference_type by) { return place -= by, own(); }
    Derived& operator++() { return *this += 1; }
    Derived& operator--() { return *this -= 1; }
    Derived operator++(int) { return std::exchange(own(), own() + 1); }
    Derived operator--(int) { return std::exchange(own(), own() - 1); }
    Derived operator+(difference_type by) const { return Derived(own()) += by; }
    Derived operator-(difference_type by) const { return Derived(own()) -= by; }
    difference_type operator-(const Derived& other) const {
        return place - other.place + own().apart(other);
    }
    bool operator==(const Derived& other) const { return *this - other == 0; }
    auto operator<=>(const Derived& other) const { return (*this - other) <=> 0; }
    difference_type apart(const Derived&) const { return 0; } // of what they begin with

  private:
    Derived& own() { return static_cast<Derived&>(*this); }
    const Derived& own() const { return static_cast<const Derived&>(*this); }
};

template <class T> struct counting_iterator : Iterator<counting_iterator<T>, T, T> {
    T first{};
    counting_iterator() = default;
    explicit counting_iterator(T begin) : first(begin) {}
    T at(std::ptrdiff_t i) const { return static_cast<T>(first + static_cast<T>(i)); }
    std::ptrdiff_t apart(const counting_iterator& other) const {
        return static_cast<std::ptrdiff_t>(first) - static_cast<std::ptrdiff_t>(other.first);
    }
};
template <class T> counting_iterator<T> make_counting_iterator(T first) {
    return counting_iterator<T>(first);
}

template <class T> struct constant_iterator : Iterator<constant_iterator<T>, T, T> {
    T value{};
    constant_iterator() = default;
    explicit constant_iterator(T given, std::ptrdiff_t begin = 0) : value(given) {
        this->place = begin;
    }
    T at(std::ptrdiff_t) const { return value; }
};
template <class T> constant_iterator<T> make_constant_iterator(T value) {
    return constant_iterator<T>(value);
}

template <class F, class It>
using ResultOf =
    std::decay_t<std::invoke_result_t<F, typename std::iterator_traits<It>::reference>>;
template <class F, class It>
struct transform_iterator : Iterator<transform_iterator<F, It>, ResultOf<F, It>, ResultOf<F, It>> {
    It of;
    F function;
    transform_iterator(It begin, F f) : of(begin), function(f) {}
    auto at(std::ptrdiff_t i) const { return ResultOf<F, It>(function(of[i])); }
    std::ptrdiff_t apart(const transform_iterator& other) const { return of - other.of; }
};
template <class F, class It> auto make_transform_iterator(It begin, F f) {
    return transform_iterator<F, It>(begin, f);
}

template <class It, class Indices>
struct permutation_iterator
    : Iterator<permutation_iterator<It, Indices>, typename std::iterator_traits<It>::value_type,
               typename std::iterator_traits<It>::reference> {
    It of;
    Indices indices;
    permutation_iterator(It begin, Indices order) : of(begin), indices(order) {}
    decltype(auto) at(std::ptrdiff_t i) const {
        return of[static_cast<std::ptrdiff_t>(indices[i])];
    }
    std::ptrdiff_t apart(const permutation_iterator& other) const {
        return indices - other.indices;
    }
};
template <class It, class Indices> auto make_permutation_iterator(It begin, Indices order) {
    return permutation_iterator<It, Indices>(begin, order);
}

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::tie;
using std::tuple;
template <class Iterators> struct zip_iterator;
template <class... Its>
struct zip_iterator<tuple<Its...>>
    : Iterator<zip_iterator<tuple<Its...>>,
               tuple<typename std::iterator_traits<Its>::value_type...>,
               tuple<typename std::iterator_traits<Its>::reference...>> {
    tuple<Its...> of;
    zip_iterator(tuple<Its...> begin) : of(begin) {}
    auto at(std::ptrdiff_t i) const {
        return std::apply(
            [&](const auto&... its) {
                return tuple<typename std::iterator_traits<Its>::reference...>(its[i]...);
            },
            of);
    }
    std::ptrdiff_t apart(const zip_iterator& other) const {
        return std::get<0>(of) - std::get<0>(other.of);
    }
    const tuple<Its...>& get_iterator_tuple() const { return of; }
};
template <class... Its> auto make_zip_iterator(tuple<Its...> begin) {
    return zip_iterator<tuple<Its...>>(begin);
}
template <class... Its> auto make_zip_iterator(Its... begin) {
    return zip_iterator<tuple<Its...>>(tuple<Its...>(begin...));
}
template <class It> auto make_reverse_iterator(It begin) {
    return std::make_reverse_iterator(begin);
}
template <class F> struct ZipFunction {
    F function;
    template <class Tuple> auto operator()(const Tuple& all) const {
        return std::apply(function, all);
    }
};
template <class F> ZipFunction<F> make_zip_function(F f) { return {f}; }

// --- where an algorithm runs
// -----------------------------------------------------------------------

struct HostPolicy {};
struct DevicePolicy {
    cudaStream_t stream = nullptr;
    DevicePolicy on(cudaStream_t of) const { return {of}; }
    template <class Allocator> DevicePolicy operator()(const Allocator&) const { return *this; }
};
inline constexpr HostPolicy host{}, seq{};
inline constexpr DevicePolicy device{};
namespace cuda {
inline constexpr DevicePolicy par{}, par_nosync{};
}
namespace detail {

template <class T> inline constexpr bool is_policy = false;
template <> inline constexpr bool is_policy<HostPolicy> = true;
template <> inline constexpr bool is_policy<DevicePolicy> = true;

template <class T> inline constexpr bool is_of_device = false;
template <class T> inline constexpr bool is_of_device<device_ptr<T>> = true;
template <class It>
inline constexpr bool is_of_device<std::reverse_iterator<It>> = is_of_device<It>;
template <class F, class It>
inline constexpr bool is_of_device<transform_iterator<F, It>> = is_of_device<It>;
template <class It, class Indices>
inline constexpr bool is_of_device<permutation_iterator<It, Indices>> =
    is_of_device<It> || is_of_device<Indices>;
template <class... Its>
inline constexpr bool is_of_device<zip_iterator<tuple<Its...>>> = (is_of_device<Its> || ...);

/// As kernels use it: pointers of C++ in the place of device_ptr.
template <class T> T raw(const T& other) { return other; }
template <class T> T* raw(const device_ptr<T>& at) { return at.get(); }
template <class It> auto raw(const std::reverse_iterator<It>& at) {
    return std::make_reverse_iterator(raw(at.base()));
}
template <class F, class It> auto raw(const transform_iterator<F, It>& at) {
    return make_transform_iterator(raw(at.of), at.function) + at.place;
}
template <class It, class Indices> auto raw(const permutation_iterator<It, Indices>& at) {
    return make_permutation_iterator(raw(at.of), raw(at.indices)) + at.place;
}
template <class... Its> auto raw(const zip_iterator<tuple<Its...>>& at) {
    return std::apply([](const auto&... its) { return make_zip_iterator(raw(its)...); }, at.of) +
           at.place;
}

/// Messages name the kernel.
template <class Work> __global__ void thrust_algorithm(Work work) { work(); }

/// A kernel of one thread. Its result comes by memory of the device.
template <class Work> auto on_device(cudaStream_t stream, Work work) {
    using Result = decltype(work());
    const flash::simt::Configuration launch(1, 1, 0, stream);
    if constexpr (std::is_void_v<Result>) {
        launch.launch(thrust_algorithm<Work>, work);
        cudaStreamSynchronize(stream); // an algorithm is over when it returns
    } else {
        const device_ptr<Result> to = device_malloc<Result>(1);
        const auto store = [=, at = to.get()] { *at = work(); };
        launch.launch(thrust_algorithm<decltype(store)>, store);
        cudaStreamSynchronize(stream);
        alignas(Result) char found[sizeof(Result)]; // iterators have no constructor of nothing
        cudaMemcpy(found, to.get(), sizeof found, cudaMemcpyDeviceToHost);
        device_free(to);
        return *reinterpret_cast<const Result*>(found);
    }
}

template <class Function, class... Arguments>
auto call_there(cudaStream_t stream, Function function, const Arguments&... arguments) {
    return on_device(stream, [=, all = std::make_tuple(raw(arguments)...)] {
        return std::apply(function, all);
    });
}

/// A result that is a place: in which of the arguments' ranges? The last one of its type.
template <class Result> Result restored(const Result& found) { return found; }
template <class Result, class First, class... More>
auto restored(const Result& found, const First& first, const More&... more) {
    constexpr bool later = (std::is_same_v<Result, decltype(raw(more))> || ...);
    if constexpr (!later && std::is_same_v<Result, decltype(raw(first))> &&
                  !std::is_same_v<Result, First>) {
        return first + (found - raw(first));
    } else {
        return restored(found, more...);
    }
}

template <class Function, class... Arguments>
auto call_with(DevicePolicy policy, Function function, const Arguments&... arguments) {
    if (flash::simt::on_device()) { // thrust::device in a kernel
        if constexpr (std::is_void_v<decltype(function(raw(arguments)...))>) {
            return function(raw(arguments)...);
        } else {
            return restored(function(raw(arguments)...), arguments...);
        }
    }
    if constexpr (std::is_void_v<decltype(function(raw(arguments)...))>) {
        call_there(policy.stream, function, arguments...);
    } else {
        return restored(call_there(policy.stream, function, arguments...), arguments...);
    }
}
template <class Function, class... Arguments>
auto call_with(HostPolicy, Function function, const Arguments&... arguments) {
    return function(arguments...);
}

template <class Function, class... Arguments>
auto call(Function function, const Arguments&... arguments) {
    if constexpr ((is_of_device<Arguments> || ...)) {
        return call_with(DevicePolicy{}, function, arguments...);
    } else {
        return function(arguments...);
    }
}
/// An algorithm, with a policy before its arguments or without.
template <class Function> struct Algorithm {
    template <class First, class... More> auto operator()(First first, More... more) const {
        if constexpr (is_policy<First>) {
            return call_with(first, Function(), more...);
        } else {
            return call(Function(), first, more...);
        }
    }
};

} // namespace detail

// --- functions
// -------------------------------------------------------------------------------------

#define FLASH_THRUST_FUNCTION(name, of, expression)                                                \
    template <class T = void> struct name {                                                        \
        auto operator()(const T& x, const T& y) const { return expression; }                       \
    };                                                                                             \
    template <> struct name<void> {                                                                \
        template <class X, class Y> auto operator()(const X& x, const Y& y) const {                \
            return expression;                                                                     \
        }                                                                                          \
    };
FLASH_THRUST_FUNCTION(plus, T, x + y)
FLASH_THRUST_FUNCTION(minus, T, x - y)
FLASH_THRUST_FUNCTION(multiplies, T, x* y)
FLASH_THRUST_FUNCTION(divides, T, x / y)
FLASH_THRUST_FUNCTION(modulus, T, x % y)
FLASH_THRUST_FUNCTION(maximum, T, x < y ? y : x)
FLASH_THRUST_FUNCTION(minimum, T, y < x ? y : x)
FLASH_THRUST_FUNCTION(less, T, x < y)
FLASH_THRUST_FUNCTION(greater, T, x > y)
FLASH_THRUST_FUNCTION(less_equal, T, x <= y)
FLASH_THRUST_FUNCTION(greater_equal, T, x >= y)
FLASH_THRUST_FUNCTION(equal_to, T, x == y)
FLASH_THRUST_FUNCTION(not_equal_to, T, x != y)
FLASH_THRUST_FUNCTION(logical_and, T, x&& y)
FLASH_THRUST_FUNCTION(logical_or, T, x || y)
FLASH_THRUST_FUNCTION(bit_and, T, x& y)
FLASH_THRUST_FUNCTION(bit_or, T, x | y)
FLASH_THRUST_FUNCTION(bit_xor, T, x ^ y)
#undef FLASH_THRUST_FUNCTION
template <class T = void> using negate = std::negate<T>;
template <class T = void> using logical_not = std::logical_not<T>;
template <class T = void> struct identity {
    const T& operator()(const T& x) const { return x; }
};
template <class T> struct square {
    T operator()(const T& x) const { return x * x; }
};
template <class A, class R> struct unary_function {
    using argument_type = A;
    using result_type = R;
};
template <class A, class B, class R> struct binary_function {
    using first_argument_type = A;
    using second_argument_type = B;
    using result_type = R;
};
template <class T> using complex = std::complex<T>;
using default_random_engine = std::minstd_rand;
using std::minstd_rand;
namespace random {
using std::minstd_rand;
using thrust::default_random_engine;
} // namespace random
template <class T = double> using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = int> using uniform_int_distribution = std::uniform_int_distribution<T>;
template <class T = double> using normal_distribution = std::normal_distribution<T>;

namespace placeholders {

template <class F> struct Expression {
    F f;
    template <class... A> auto operator()(const A&... a) const { return f(a...); }
};
template <class F> Expression(F) -> Expression<F>;
template <class F, class A, class... All>
auto value(const Expression<F>& of, const A& a, const All&... all) {
    return of(a, all...);
}
template <class T, class... All> const T& value(const T& constant, const All&...) {
    return constant;
}
inline constexpr auto first_of = [](const auto& a, const auto&...) { return a; };
inline constexpr auto second_of = [](const auto&, const auto& b) { return b; };
inline constexpr Expression<decltype(first_of)> _1{first_of};
inline constexpr Expression<decltype(second_of)> _2{second_of};
template <class T> inline constexpr bool is_expression = false;
template <class F> inline constexpr bool is_expression<Expression<F>> = true;
#define FLASH_THRUST_OPERATOR(symbol)                                                              \
    template <class X, class Y>                                                                    \
    requires(is_expression<X> || is_expression<Y>) auto operator symbol(const X& x, const Y& y) {  \
        return Expression{[=](const auto&... a) { return value(x, a...) symbol value(y, a...); }}; \
    }
FLASH_THRUST_OPERATOR(+)
FLASH_THRUST_OPERATOR(-)
FLASH_THRUST_OPERATOR(*)
FLASH_THRUST_OPERATOR(/)
FLASH_THRUST_OPERATOR(%)
FLASH_THRUST_OPERATOR(<)
FLASH_THRUST_OPERATOR(>)
FLASH_THRUST_OPERATOR(<=)
FLASH_THRUST_OPERATOR(>=)
FLASH_THRUST_OPERATOR(==)
FLASH_THRUST_OPERATOR(!=)
FLASH_THRUST_OPERATOR(&&)
FLASH_THRUST_OPERATOR(||)
#undef FLASH_THRUST_OPERATOR

} // namespace placeholders

// --- algorithms
// ------------------------------------------------------------------------------------

namespace detail {

template <class It> using ValueOf = typename std::iterator_traits<It>::value_type;

// Each is what the algorithm of C++ with this name does with the same arguments.
#define FLASH_THRUST_AS_IN_STD(name)                                                               \
    struct name##_of_std {                                                                         \
        template <class... A> auto operator()(A... a) const { return std::name(a...); }            \
    };
#define FLASH_THRUST_ALGORITHM(name, Function)                                                     \
    inline constexpr detail::Algorithm<detail::Function> name;

FLASH_THRUST_AS_IN_STD(transform)
FLASH_THRUST_AS_IN_STD(fill)
FLASH_THRUST_AS_IN_STD(fill_n)
FLASH_THRUST_AS_IN_STD(generate)
FLASH_THRUST_AS_IN_STD(replace)
FLASH_THRUST_AS_IN_STD(replace_if)
FLASH_THRUST_AS_IN_STD(count)
FLASH_THRUST_AS_IN_STD(count_if)
FLASH_THRUST_AS_IN_STD(find)
FLASH_THRUST_AS_IN_STD(find_if)
FLASH_THRUST_AS_IN_STD(find_if_not)
FLASH_THRUST_AS_IN_STD(max_element)
FLASH_THRUST_AS_IN_STD(min_element)
FLASH_THRUST_AS_IN_STD(sort)
FLASH_THRUST_AS_IN_STD(stable_sort)
FLASH_THRUST_AS_IN_STD(is_sorted)
FLASH_THRUST_AS_IN_STD(unique)
FLASH_THRUST_AS_IN_STD(unique_copy)
FLASH_THRUST_AS_IN_STD(remove)
FLASH_THRUST_AS_IN_STD(reverse)
FLASH_THRUST_AS_IN_STD(reverse_copy)
FLASH_THRUST_AS_IN_STD(equal)
FLASH_THRUST_AS_IN_STD(all_of)
FLASH_THRUST_AS_IN_STD(any_of)
FLASH_THRUST_AS_IN_STD(none_of)
FLASH_THRUST_AS_IN_STD(merge)
FLASH_THRUST_AS_IN_STD(set_union)
FLASH_THRUST_AS_IN_STD(set_intersection)
FLASH_THRUST_AS_IN_STD(set_difference)
FLASH_THRUST_AS_IN_STD(adjacent_difference)
FLASH_THRUST_AS_IN_STD(inclusive_scan)
FLASH_THRUST_AS_IN_STD(partition)
FLASH_THRUST_AS_IN_STD(stable_partition)
FLASH_THRUST_AS_IN_STD(swap_ranges)
#undef FLASH_THRUST_AS_IN_STD

struct for_each_element {
    template <class It, class F> auto operator()(It first, It last, F f) const {
        for (; first != last; ++first) {
            f(*first);
        }
        return first;
    }
};
struct for_each_of_n {
    template <class It, class F> auto operator()(It first, size_t count, F f) const {
        return for_each_element()(first, first + static_cast<std::ptrdiff_t>(count), f);
    }
};
struct sequence_of {
    template <class It, class T = ValueOf<It>>
    void operator()(It first, It last, T begin = T(0), T step = T(1)) const {
        for (T i = 0; first != last; ++first, ++i) {
            *first = begin + i * step;
        }
    }
};
struct tabulate_by {
    template <class It, class F> void operator()(It first, It last, F f) const {
        for (std::ptrdiff_t i = 0; first != last; ++first, ++i) {
            *first = f(i);
        }
    }
};
struct sum_of {
    template <class It> auto operator()(It first, It last) const {
        return (*this)(first, last, ValueOf<It>());
    }
    template <class It, class T> T operator()(It first, It last, T sum) const {
        return (*this)(first, last, sum, plus<T>());
    }
    template <class It, class T, class F> T operator()(It first, It last, T sum, F f) const {
        for (; first != last; ++first) {
            sum = f(sum, *first);
        }
        return sum;
    }
};
struct sum_of_transformed {
    template <class It, class G, class T, class F>
    T operator()(It first, It last, G g, T sum, F f) const {
        for (; first != last; ++first) {
            sum = f(sum, g(*first));
        }
        return sum;
    }
};
struct inner_product_of {
    template <class It, class Other, class T>
    T operator()(It first, It last, Other other, T sum) const {
        return (*this)(first, last, other, sum, plus<T>(), multiplies<T>());
    }
    template <class It, class Other, class T, class F, class G>
    T operator()(It first, It last, Other other, T sum, F f, G g) const {
        for (; first != last; ++first, ++other) {
            sum = f(sum, g(*first, *other));
        }
        return sum;
    }
};
struct exclusive_scan_of {
    template <class It, class To> auto operator()(It first, It last, To to) const {
        return (*this)(first, last, to, ValueOf<It>());
    }
    template <class It, class To, class T> auto operator()(It first, It last, To to, T sum) const {
        return std::exclusive_scan(first, last, to, sum);
    }
    template <class It, class To, class T, class F>
    auto operator()(It first, It last, To to, T sum, F f) const {
        return std::exclusive_scan(first, last, to, sum, f);
    }
};
struct copy_if_by {
    template <class It, class To, class F> auto operator()(It first, It last, To to, F f) const {
        return std::copy_if(first, last, to, f);
    }
    template <class It, class Stencil, class To, class F>
    auto operator()(It first, It last, Stencil stencil, To to, F f) const {
        for (; first != last; ++first, ++stencil) {
            if (f(*stencil)) {
                *to = *first;
                ++to;
            }
        }
        return to;
    }
};
struct remove_if_by {
    template <class It, class F> auto operator()(It first, It last, F f) const {
        It to = first;
        for (; first != last; ++first) {
            if (!f(*first)) {
                *to = *first;
                ++to;
            }
        }
        return to;
    }
};
struct transform_if_by {
    template <class It, class To, class F, class P>
    auto operator()(It first, It last, To to, F f, P p) const {
        for (; first != last; ++first, ++to) {
            if (p(*first)) {
                *to = f(*first);
            }
        }
        return to;
    }
};
struct copy_elements {
    template <class It, class To> auto operator()(It first, It last, To to) const {
        for (; first != last; ++first, ++to) {
            *to = *first;
        }
        return to;
    }
};
struct gather_by {
    template <class Map, class It, class To>
    auto operator()(Map first, Map last, It from, To to) const {
        for (; first != last; ++first, ++to) {
            *to = from[*first];
        }
        return to;
    }
};
struct scatter_by {
    template <class It, class Map, class To>
    void operator()(It first, It last, Map map, To to) const {
        for (; first != last; ++first, ++map) {
            to[*map] = *first;
        }
    }
};
/// By an order of places, so that what stands beside a key moves with it.
struct sort_beside {
    template <class Keys, class Values>
    void operator()(Keys first, Keys last, Values values) const {
        (*this)(first, last, values, less<ValueOf<Keys>>());
    }
    template <class Keys, class Values, class F>
    void operator()(Keys first, Keys last, Values values, F f) const {
        const auto swap_at = [&](std::ptrdiff_t a, std::ptrdiff_t b) {
            const ValueOf<Keys> key = first[a];
            const ValueOf<Values> beside = values[a];
            first[a] = ValueOf<Keys>(first[b]);
            values[a] = ValueOf<Values>(values[b]);
            first[b] = key;
            values[b] = beside;
        };
        const std::ptrdiff_t count = last - first;
        std::vector<std::ptrdiff_t> order(static_cast<size_t>(count));
        std::iota(order.begin(), order.end(), std::ptrdiff_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::ptrdiff_t a, std::ptrdiff_t b) { return f(first[a], first[b]); });
        for (std::ptrdiff_t i = 0; i < count; ++i) {
            std::ptrdiff_t from = order[static_cast<size_t>(i)];
            while (from < i) { // has been moved
                from = order[static_cast<size_t>(from)];
            }
            if (from != i) {
                swap_at(i, from);
            }
        }
    }
};
struct reduce_beside {
    template <class Keys, class Values, class ToKeys, class ToValues>
    auto operator()(Keys first, Keys last, Values values, ToKeys keys, ToValues sums) const {
        return (*this)(first, last, values, keys, sums, equal_to<ValueOf<Keys>>());
    }
    template <class Keys, class Values, class ToKeys, class ToValues, class Same>
    auto operator()(Keys first, Keys last, Values values, ToKeys keys, ToValues sums,
                    Same same) const {
        return (*this)(first, last, values, keys, sums, same, plus<ValueOf<Values>>());
    }
    template <class Keys, class Values, class ToKeys, class ToValues, class Same, class F>
    auto operator()(Keys first, Keys last, Values values, ToKeys keys, ToValues sums, Same same,
                    F f) const {
        while (first != last) {
            const ValueOf<Keys> key = *first;
            ValueOf<Values> sum = *values;
            for (++first, ++values; first != last && same(key, *first); ++first, ++values) {
                sum = f(sum, *values);
            }
            *keys = key;
            *sums = sum;
            ++keys;
            ++sums;
        }
        return std::make_pair(keys, sums);
    }
};
struct bound_of {
    template <class It, class T> auto operator()(It first, It last, const T& x) const {
        return std::lower_bound(first, last, x);
    }
    template <class It, class Queries, class To>
    auto operator()(It first, It last, Queries query, Queries end, To to) const {
        for (; query != end; ++query, ++to) {
            *to = std::lower_bound(first, last, *query) - first;
        }
        return to;
    }
};
struct upper_bound_of {
    template <class It, class T> auto operator()(It first, It last, const T& x) const {
        return std::upper_bound(first, last, x);
    }
    template <class It, class Queries, class To>
    auto operator()(It first, It last, Queries query, Queries end, To to) const {
        for (; query != end; ++query, ++to) {
            *to = std::upper_bound(first, last, *query) - first;
        }
        return to;
    }
};
struct is_among {
    template <class It, class T> bool operator()(It first, It last, const T& x) const {
        return std::binary_search(first, last, x);
    }
};

} // namespace detail

FLASH_THRUST_ALGORITHM(transform, transform_of_std)
FLASH_THRUST_ALGORITHM(fill, fill_of_std)
FLASH_THRUST_ALGORITHM(fill_n, fill_n_of_std)
FLASH_THRUST_ALGORITHM(generate, generate_of_std)
FLASH_THRUST_ALGORITHM(replace, replace_of_std)
FLASH_THRUST_ALGORITHM(replace_if, replace_if_of_std)
FLASH_THRUST_ALGORITHM(count, count_of_std)
FLASH_THRUST_ALGORITHM(count_if, count_if_of_std)
FLASH_THRUST_ALGORITHM(find, find_of_std)
FLASH_THRUST_ALGORITHM(find_if, find_if_of_std)
FLASH_THRUST_ALGORITHM(find_if_not, find_if_not_of_std)
FLASH_THRUST_ALGORITHM(max_element, max_element_of_std)
FLASH_THRUST_ALGORITHM(min_element, min_element_of_std)
FLASH_THRUST_ALGORITHM(sort, sort_of_std)
FLASH_THRUST_ALGORITHM(stable_sort, stable_sort_of_std)
FLASH_THRUST_ALGORITHM(is_sorted, is_sorted_of_std)
FLASH_THRUST_ALGORITHM(unique, unique_of_std)
FLASH_THRUST_ALGORITHM(unique_copy, unique_copy_of_std)
FLASH_THRUST_ALGORITHM(remove, remove_of_std)
FLASH_THRUST_ALGORITHM(reverse, reverse_of_std)
FLASH_THRUST_ALGORITHM(reverse_copy, reverse_copy_of_std)
FLASH_THRUST_ALGORITHM(equal, equal_of_std)
FLASH_THRUST_ALGORITHM(all_of, all_of_of_std)
FLASH_THRUST_ALGORITHM(any_of, any_of_of_std)
FLASH_THRUST_ALGORITHM(none_of, none_of_of_std)
FLASH_THRUST_ALGORITHM(merge, merge_of_std)
FLASH_THRUST_ALGORITHM(set_union, set_union_of_std)
FLASH_THRUST_ALGORITHM(set_intersection, set_intersection_of_std)
FLASH_THRUST_ALGORITHM(set_difference, set_difference_of_std)
FLASH_THRUST_ALGORITHM(adjacent_difference, adjacent_difference_of_std)
FLASH_THRUST_ALGORITHM(inclusive_scan, inclusive_scan_of_std)
FLASH_THRUST_ALGORITHM(partition, partition_of_std)
FLASH_THRUST_ALGORITHM(stable_partition, stable_partition_of_std)
FLASH_THRUST_ALGORITHM(swap_ranges, swap_ranges_of_std)
FLASH_THRUST_ALGORITHM(for_each, for_each_element)
FLASH_THRUST_ALGORITHM(for_each_n, for_each_of_n)
FLASH_THRUST_ALGORITHM(sequence, sequence_of)
FLASH_THRUST_ALGORITHM(tabulate, tabulate_by)
FLASH_THRUST_ALGORITHM(reduce, sum_of)
FLASH_THRUST_ALGORITHM(transform_reduce, sum_of_transformed)
FLASH_THRUST_ALGORITHM(inner_product, inner_product_of)
FLASH_THRUST_ALGORITHM(exclusive_scan, exclusive_scan_of)
FLASH_THRUST_ALGORITHM(copy_if, copy_if_by)
FLASH_THRUST_ALGORITHM(remove_if, remove_if_by)
FLASH_THRUST_ALGORITHM(transform_if, transform_if_by)
FLASH_THRUST_ALGORITHM(gather, gather_by)
FLASH_THRUST_ALGORITHM(scatter, scatter_by)
FLASH_THRUST_ALGORITHM(sort_by_key, sort_beside)
FLASH_THRUST_ALGORITHM(stable_sort_by_key, sort_beside)
FLASH_THRUST_ALGORITHM(reduce_by_key, reduce_beside)
FLASH_THRUST_ALGORITHM(lower_bound, bound_of)
FLASH_THRUST_ALGORITHM(upper_bound, upper_bound_of)
FLASH_THRUST_ALGORITHM(binary_search, is_among)
#undef FLASH_THRUST_ALGORITHM

/// Also between the host and the device.
struct Copy {
    template <class First, class... More> auto operator()(First first, More... more) const {
        if constexpr (detail::is_policy<First>) {
            return detail::call_with(first, detail::copy_elements(), more...);
        } else {
            return between(first, more...);
        }
    }

  private:
    template <class It, class To> static To between(It first, It last, To to) {
        using Value = detail::ValueOf<It>;
        const auto count = static_cast<size_t>(last - first);
        if constexpr (detail::is_of_device<It> == detail::is_of_device<To>) {
            return detail::call(detail::copy_elements(), first, last, to);
        } else if constexpr (detail::is_of_device<It>) {
            const device_ptr<Value> made = device_malloc<Value>(std::max<size_t>(count, 1));
            detail::call(detail::copy_elements(), first, last, made);
            std::vector<Value> all(count);
            cudaMemcpy(all.data(), made.get(), count * sizeof(Value), cudaMemcpyDeviceToHost);
            device_free(made);
            return std::copy(all.begin(), all.end(), to);
        } else {
            using Target = detail::ValueOf<To>;
            const std::vector<Target> all(first, last);
            const device_ptr<Target> made = device_malloc<Target>(std::max<size_t>(count, 1));
            cudaMemcpy(made.get(), all.data(), count * sizeof(Target), cudaMemcpyHostToDevice);
            const To end = detail::call(detail::copy_elements(), made, made + count, to);
            device_free(made);
            return end;
        }
    }
};
inline constexpr Copy copy;
template <class It, class To> To copy_n(It first, size_t count, To to) {
    return copy(first, first + static_cast<std::ptrdiff_t>(count), to);
}
template <class It> auto distance(It first, It last) { return last - first; }
template <class It> void advance(It& at, std::ptrdiff_t by) { at += by; }
template <class It> auto minmax_element(It first, It last) {
    return std::make_pair(min_element(first, last), max_element(first, last));
}
using std::swap;

// --- vectors
// ---------------------------------------------------------------------------------------

template <class T, class Allocator = void> class device_vector;

template <class T, class Allocator = std::allocator<T>>
class host_vector : public std::vector<T, Allocator> {
  public:
    using Base = std::vector<T, Allocator>;
    using Base::Base;
    host_vector() = default;
    host_vector(const Base& other) : Base(other) {}
    template <class U, class A> host_vector(const device_vector<U, A>& other) { *this = other; }
    template <class U> host_vector(device_ptr<U> first, device_ptr<U> last) {
        this->resize(static_cast<size_t>(last - first));
        copy(first, last, this->begin());
    }
    template <class U, class A> host_vector& operator=(const device_vector<U, A>& other) {
        this->resize(other.size());
        copy(other.begin(), other.end(), this->begin());
        return *this;
    }
};

template <class T, class Allocator> class device_vector {
  public:
    using value_type = T;
    using reference = device_reference<T>;
    using const_reference = device_reference<const T>;
    using pointer = device_ptr<T>;
    using iterator = device_ptr<T>;
    using const_iterator = device_ptr<const T>;
    using size_type = size_t;
    using difference_type = std::ptrdiff_t;

    device_vector() = default;
    explicit device_vector(size_t count, const T& value = T()) { resize(count, value); }
    device_vector(std::initializer_list<T> all) { assign(all.begin(), all.end()); }
    template <class It>
    requires requires(It it) { typename std::iterator_traits<It>::iterator_category; }
    device_vector(It first, It last) { assign(first, last); }
    device_vector(const device_vector& other) { assign(other.begin(), other.end()); }
    device_vector(device_vector&& other) noexcept { swap(other); }
    template <class U, class A> device_vector(const device_vector<U, A>& other) {
        assign(other.begin(), other.end());
    }
    template <class U, class A> device_vector(const std::vector<U, A>& other) {
        assign(other.begin(), other.end());
    }
    ~device_vector() { release(); }
    device_vector& operator=(const device_vector& other) {
        if (this != &other) {
            assign(other.begin(), other.end());
        }
        return *this;
    }
    device_vector& operator=(device_vector&& other) noexcept {
        swap(other);
        return *this;
    }
    template <class U, class A> device_vector& operator=(const std::vector<U, A>& other) {
        assign(other.begin(), other.end());
        return *this;
    }
    template <class It>
    requires requires(It it) { typename std::iterator_traits<It>::iterator_category; }
    void assign(It first, It last) {
        const auto count = static_cast<size_t>(last - first);
        reserve(count);
        size_ = count;
        copy(first, last, begin());
    }
    void assign(size_t count, const T& value) {
        clear();
        resize(count, value);
    }

    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    bool empty() const { return size_ == 0; }
    iterator begin() { return iterator(data_); }
    iterator end() { return iterator(data_ + size_); }
    const_iterator begin() const { return const_iterator(data_); }
    const_iterator end() const { return const_iterator(data_ + size_); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    auto rbegin() { return std::make_reverse_iterator(end()); }
    auto rend() { return std::make_reverse_iterator(begin()); }
    device_ptr<T> data() { return begin(); }
    device_ptr<const T> data() const { return begin(); }
    reference operator[](size_t i) { return reference(data_ + i); }
    const_reference operator[](size_t i) const { return const_reference(data_ + i); }
    reference front() { return (*this)[0]; }
    reference back() { return (*this)[size_ - 1]; }
    const_reference front() const { return (*this)[0]; }
    const_reference back() const { return (*this)[size_ - 1]; }

    void reserve(size_t count) {
        if (count <= capacity_) {
            return;
        }
        T* const larger = device_malloc<T>(count).get();
        if (size_ > 0) {
            cudaMemcpy(larger, data_, size_ * sizeof(T), cudaMemcpyDeviceToDevice);
        }
        cudaFree(data_);
        data_ = larger;
        capacity_ = count;
    }
    void resize(size_t count, const T& value = T()) {
        reserve(count);
        if (count > size_) {
            const std::vector<T> more(count - size_, value);
            cudaMemcpy(data_ + size_, more.data(), more.size() * sizeof(T), cudaMemcpyHostToDevice);
        }
        size_ = count;
    }
    void push_back(const T& value) {
        reserve(size_ < capacity_ ? capacity_ : 2 * size_ + 1);
        resize(size_ + 1, value);
    }
    void pop_back() { --size_; }
    void clear() { size_ = 0; }
    void shrink_to_fit() {}
    iterator erase(iterator first, iterator last) {
        const std::vector<T> rest = host_vector<T>(last, end());
        size_ = static_cast<size_t>(first - begin()) + rest.size();
        copy(rest.begin(), rest.end(), first);
        return first;
    }
    iterator erase(iterator at) { return erase(at, at + 1); }
    void swap(device_vector& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    friend bool operator==(const device_vector& a, const device_vector& b) {
        return a.size() == b.size() && equal(a.begin(), a.end(), b.begin());
    }

  private:
    void release() {
        if (data_ != nullptr) {
            cudaFree(data_);
        }
    }

    T* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

} // namespace thrust
