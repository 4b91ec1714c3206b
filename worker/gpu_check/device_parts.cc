// The parts of one device: memory and arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "worker/gpu_check/parts.h"
#include "worker/gpu_check/values.h"

namespace lockstep::worker::gpu_check {
namespace {

// Of an allocation; a memory of pieces may have none that is larger.
constexpr size_t kChunk = size_t{1} << 30;
constexpr size_t kLeastChunk = size_t{16} << 20;
constexpr uint32_t kMatrixSize = 4096;
static_assert(kMatrixSize <= kMostDepth && kMatrixSize % 64 == 0);

// Memory of the device.
class Memory {
 public:
  Memory() = default;
  ~Memory() {
    for (void* each : all_) (void)cudaFree(each);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null: there is not so much.
  void* TryAllocate(size_t bytes) {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      (void)cudaGetLastError();  // It is no longer the last error.
      return nullptr;
    }
    all_.push_back(data);
    return data;
  }
  template <typename T>
  Status Allocate(size_t count, T** data) {
    *data = static_cast<T*>(TryAllocate(count * sizeof(T)));
    return *data != nullptr
               ? OkStatus()
               : Unavailable("{} bytes of memory cannot be allocated",
                             count * sizeof(T));
  }

 private:
  std::vector<void*> all_;
};

struct Chunk {
  uint64_t* words = nullptr;
  size_t count = 0;
  // The number of its first word among all.
  uint64_t base = 0;
};

// Nine tenths of what is free.
StatusOr<std::vector<Chunk>> TakeMemory(Memory* memory) {
  size_t free = 0, total = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaMemGetInfo(&free, &total), "reading the free memory"));
  size_t wanted = free / 10 * 9;
  std::vector<Chunk> chunks;
  uint64_t base = 0;
  for (size_t size = kChunk; wanted >= kLeastChunk && size >= kLeastChunk;) {
    const size_t bytes = std::min(size, wanted) / 4096 * 4096;
    auto* const words = static_cast<uint64_t*>(memory->TryAllocate(bytes));
    if (words == nullptr) {
      size /= 2;
      continue;
    }
    chunks.push_back({words, bytes / sizeof(uint64_t), base});
    base += bytes / sizeof(uint64_t);
    wanted -= bytes;
  }
  if (chunks.empty()) {
    return Unavailable("none of its {} free bytes can be allocated", free);
  }
  return chunks;
}

Status Wrong(const Mismatch& found, const char* what, size_t size) {
  return Aborted("{} of its {} wrong, the first at byte {}", found.count,
                 found.count == 1 ? fmt::format("{} is", what)
                                  : fmt::format("{}s are", what),
                 found.first * size);
}

}  // namespace

Status Check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return OkStatus();
  return Unavailable("CUDA: {}: {} ({})", doing, cudaGetErrorString(error),
                     static_cast<int>(error));
}

Found::~Found() { (void)cudaFree(found_); }

Status Found::Allocate() {
  return Check(cudaMalloc(reinterpret_cast<void**>(&found_), sizeof(Mismatch)),
               "allocating memory");
}

Status Found::Clear() {
  const Mismatch none{0, ~0ull};
  return Check(cudaMemcpy(found_, &none, sizeof(none), cudaMemcpyHostToDevice),
               "writing memory");
}

StatusOr<Mismatch> Found::Read() const {
  Mismatch found{};
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaMemcpy(&found, found_, sizeof(found), cudaMemcpyDeviceToHost),
            "comparing"));
  return found;
}

DeviceTimer::~DeviceTimer() {
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
}

Status DeviceTimer::Start() {
  if (begin_ == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(Check(cudaEventCreate(&begin_), "timing"));
    LOCKSTEP_RETURN_IF_ERROR(Check(cudaEventCreate(&end_), "timing"));
  }
  return Check(cudaEventRecord(begin_, nullptr), "timing");
}

StatusOr<double> DeviceTimer::Stop() {
  LOCKSTEP_RETURN_IF_ERROR(Check(cudaEventRecord(end_, nullptr), "timing"));
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaEventSynchronize(end_), "waiting for its work"));
  float milliseconds = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing"));
  return milliseconds / 1e3;
}

StatusOr<double> CheckMemory(const PartOptions& options) {
  Found found;
  LOCKSTEP_RETURN_IF_ERROR(found.Allocate());
  Memory memory;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Chunk> chunks,
                            TakeMemory(&memory));
  const MonoTime end = MonotonicNow() + options.time;
  DeviceTimer timer;
  double seconds = 0, bytes = 0;
  for (uint32_t round = 0; round < 2 || MonotonicNow() < end; ++round) {
    LOCKSTEP_RETURN_IF_ERROR(found.Clear());
    LOCKSTEP_RETURN_IF_ERROR(timer.Start());
    for (const Chunk& chunk : chunks) {
      LOCKSTEP_RETURN_IF_ERROR(
          Check(WritePattern(chunk.words, chunk.count, chunk.base, round),
                "writing patterns"));
    }
    if (options.spoil) {
      const Chunk& last = chunks.back();
      LOCKSTEP_RETURN_IF_ERROR(Check(
          cudaMemset(last.words + last.count - 1, 0x55, 1), "spoiling a word"));
    }
    for (const Chunk& chunk : chunks) {
      LOCKSTEP_RETURN_IF_ERROR(
          Check(ComparePattern(chunk.words, chunk.count, chunk.base, round,
                               found.get()),
                "comparing patterns"));
      bytes += 2.0 * static_cast<double>(chunk.count * sizeof(uint64_t));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double took, timer.Stop());
    seconds += took;
    LOCKSTEP_ASSIGN_OR_RETURN(const Mismatch wrong, found.Read());
    if (wrong.count > 0) return Wrong(wrong, "word", sizeof(uint64_t));
  }
  return seconds > 0 ? bytes / seconds / 1e9 : 0.0;
}

StatusOr<double> CheckMatmul(const PartOptions& options) {
  Found found;
  LOCKSTEP_RETURN_IF_ERROR(found.Allocate());
  Memory memory;
  Matrices m{};
  m.size = kMatrixSize;
  const size_t count = size_t{kMatrixSize} * kMatrixSize;
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(count, &m.left));
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(count, &m.right));
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(count, &m.product));
  uint16_t *half_left = nullptr, *half_right = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(count, &half_left));
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(count, &half_right));
  m.half_left = half_left;
  m.half_right = half_right;
  const std::vector<float> known = ProductTable(kMatrixSize);
  float* table = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(memory.Allocate(known.size(), &table));
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaMemcpy(table, known.data(), known.size() * sizeof(float),
                       cudaMemcpyHostToDevice),
            "writing memory"));
  const MonoTime end = MonotonicNow() + options.time;
  DeviceTimer timer;
  double seconds = 0, operations = 0;
  for (uint32_t round = 0; round < 2 || MonotonicNow() < end; ++round) {
    const bool tensor = round % 2 == 1;
    LOCKSTEP_RETURN_IF_ERROR(found.Clear());
    LOCKSTEP_RETURN_IF_ERROR(
        Check(WriteMatrices(m, round), "writing matrices"));
    LOCKSTEP_RETURN_IF_ERROR(timer.Start());
    LOCKSTEP_RETURN_IF_ERROR(
        Check(tensor ? MultiplyHalves(m) : MultiplyFloats(m), "multiplying"));
    LOCKSTEP_ASSIGN_OR_RETURN(const double took, timer.Stop());
    if (options.spoil) {
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaMemset(m.product + count - 1, 0x3f, 4),
                                     "spoiling an element"));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Check(CompareProduct(m, table, round, found.get()), "comparing"));
    LOCKSTEP_ASSIGN_OR_RETURN(const Mismatch wrong, found.Read());
    if (wrong.count > 0) {
      return Aborted(
          "{} of {} elements of a product by the {} are wrong, the "
          "first at row {}, column {}",
          wrong.count, count, tensor ? "tensor cores" : "cores for floats",
          wrong.first / kMatrixSize, wrong.first % kMatrixSize);
    }
    // The rate is that of the cores for floats: the other kernel waits for
    // memory.
    if (tensor) continue;
    seconds += took;
    operations += 2.0 * kMatrixSize * kMatrixSize * kMatrixSize;
  }
  return seconds > 0 ? operations / seconds / 1e12 : 0.0;
}

}  // namespace lockstep::worker::gpu_check
