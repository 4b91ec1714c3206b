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

// Of containers, by which tests know one.
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

// Of a container, or an optional. Reads as a const T, and changes by Edit,
// which makes a value of its own where others share it. Copies may be read and
// changed in different threads; one object is as thread-safe as a T.
template <typename T>
class Shared : public shared_internal::Iterators<T> {
 public:
  using value_type = typename T::value_type;

  Shared() = default;
  // Wherever a T goes: as if it were one.
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
  // Valid until this object is copied, assigned or gone.
  T& Edit() {
    if (value_ == nullptr) {
      value_ = std::make_shared<T>();
    } else if (value_.use_count() != 1) {
      value_ = std::make_shared<T>(*value_);
    } else {
// The thread sanitizer knows no fences. Beside protobuf only libstdc++'s name
// of it is defined (proto/CMakeLists.txt).
#if !defined(__SANITIZE_THREAD__) && !defined(_GLIBCXX_TSAN)
      // What others read before they let go of it happened before.
      std::atomic_thread_fence(std::memory_order_acquire);
#endif
    }
    return *value_;
  }
  // The same for all that share it, and no other's; null: it is empty, and
  // takes nothing.
  const void* identity() const { return value_.get(); }

  // ---- As T has them ----
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
