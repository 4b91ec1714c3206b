// A value that its copies share until one of them is changed.
#ifndef LOCKSTEP_COMMON_BASE_SHARED_VALUE_H_
#define LOCKSTEP_COMMON_BASE_SHARED_VALUE_H_

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>

namespace lockstep {

namespace shared_internal {

// Types that tests recognise as containers.
template <typename T>
struct Iterators {};
template <typename T>
requires requires { typename T::const_iterator; }
struct Iterators<T> {
  using const_iterator = typename T::const_iterator;
  using iterator = const_iterator;
  using const_reference = typename T::const_reference;
  using size_type = typename T::size_type;
};

}  // namespace shared_internal

// A container or optional. It reads as a const T and changes by Edit, which
// copies the value first if others share it. Different threads may read and
// change copies; one object is as thread-safe as a T.
template <typename T>
class Shared : public shared_internal::Iterators<T> {
 public:
  using value_type = typename T::value_type;

  Shared() = default;
  // Implicit, so that it can replace a T.
  Shared(T value)  // NOLINT(google-explicit-constructor)
      : value_(std::make_shared<T>(std::move(value))) {}
  Shared(std::initializer_list<value_type> values) : Shared(T(values)) {}
  template <typename Iterator>
  Shared(Iterator first, Iterator last) : Shared(T(first, last)) {}

  const T& get() const {
    static const T empty;
    return value_ == nullptr ? empty : *value_;
  }
  operator const T&() const {  // NOLINT(google-explicit-constructor)
    return get();
  }
  // The reference is valid until this object is copied, assigned or destroyed.
  T& Edit() {
    if (value_ == nullptr) {
      value_ = std::make_shared<T>();
    } else if (value_.use_count() != 1) {
      value_ = std::make_shared<T>(*value_);
    } else {
// The thread sanitizer does not know fences. With protobuf only libstdc++'s
// name of the macro is defined (proto/CMakeLists.txt).
#if !defined(__SANITIZE_THREAD__) && !defined(_GLIBCXX_TSAN)
      // Reads by former sharers happen before this change.
      std::atomic_thread_fence(std::memory_order_acquire);
#endif
    }
    return *value_;
  }
  // Equal for all objects that share the value. Null if it is empty and takes
  // no memory.
  const void* identity() const { return value_.get(); }

  // ---- The interface of T ----
  auto begin() const requires requires(const T& value) { value.begin(); }
  { return get().begin(); }
  auto end() const requires requires(const T& value) { value.end(); }
  { return get().end(); }
  auto size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  const auto& front() const { return get().front(); }
  const auto& back() const { return get().back(); }
  const auto& operator[](size_t i) const { return get()[i]; }
  template <typename Key>
  const auto& at(const Key& key) const {
    return get().at(key);
  }
  template <typename Key>
  auto find(const Key& key) const {
    return get().find(key);
  }
  template <typename Key>
  bool contains(const Key& key) const {
    return get().contains(key);
  }
  template <typename Key>
  size_t count(const Key& key) const {
    return get().count(key);
  }
  void push_back(value_type value) { Edit().push_back(std::move(value)); }

  friend bool operator==(const Shared& a, const Shared& b) {
    return a.value_ == b.value_ || a.get() == b.get();
  }
  friend bool operator==(const Shared& a, const T& b) { return a.get() == b; }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_SHARED_VALUE_H_
