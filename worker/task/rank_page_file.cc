// The two ends of a rank's page that touch a file: PageWriter and PageReader.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "worker/task/rank_page.h"
#include "worker/task/rank_page_words.h"

namespace lockstep::worker::task {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

// A writer holds the page for well under a microsecond.
constexpr int kTries = 50;

std::string Failure(const char* doing, const std::string& path, int error) {
  return std::string(doing) + " the rank's page " + path + ": " +
         strerror(error);
}

}  // namespace

std::unique_ptr<PageWriter> PageWriter::Create(const std::string& path,
                                               uint32_t rank,
                                               std::string* error) {
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (fd < 0) {
    *error = Failure("opening", path, errno);
    return nullptr;
  }
  void* memory = MAP_FAILED;
  // To nothing first: what an earlier run left there is gone. With its space:
  // a write to a page that the disk has no room for is a SIGBUS.
  int failure = ftruncate(fd, 0) == 0 ? 0 : errno;
  if (failure == 0) failure = posix_fallocate(fd, 0, kPageBytes);
  if (failure == 0) {
    memory =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) failure = errno;
  }
  if (memory == MAP_FAILED) {
    *error = Failure("mapping", path, failure);
    close(fd);
    return nullptr;
  }
  close(fd);
  std::unique_ptr<PageWriter> writer(
      new PageWriter(static_cast<std::atomic<uint64_t>*>(memory), rank));
  writer->SetProgress(RankProgress());
  // Last, so that a reader finds no page rather than an unwritten one.
  writer->words_[kWordMagic].store(kPageMagic, std::memory_order_release);
  return writer;
}

PageWriter::~PageWriter() { munmap(words_, kPageBytes); }

// A sequence lock without fences, which the thread sanitizer does not support:
// each word is stored with release, so a reader of a new word also sees the odd
// number that was stored before it (Boehm, "Can seqlocks get along with
// programming language memory models?", MSPC 2012).
void PageWriter::Store(size_t from, size_t to) {
  const uint64_t sequence =
      words_[kWordSequence].load(std::memory_order_relaxed);
  words_[kWordSequence].store(sequence + 1, std::memory_order_relaxed);
  for (size_t i = from; i < to; ++i) {
    words_[i].store(staged_[i], std::memory_order_release);
  }
  words_[kWordSequence].store(sequence + 2, std::memory_order_release);
}

void PageWriter::SetProgress(const RankProgress& progress) {
  RankProgress own = progress;
  own.rank = rank_;
  EncodeProgress(own, &staged_);
  Store(kWordGeneration, kWordBlock);
}

void PageWriter::SetCounters(const RankCounters& counters) {
  EncodeCounters(counters, &staged_);
  Store(kWordBlock, kWordEnd);
}

// No sequence: the beat says that the word is there, and each is true by
// itself.
void PageWriter::SetWait(const RankWait& wait) {
  words_[kWordWait].store(EncodeWait(wait), std::memory_order_relaxed);
  words_[kWordBeat].store(++beat_, std::memory_order_release);
}

std::unique_ptr<PageReader> PageReader::Open(const std::string& path,
                                             std::string* error) {
  // O_NONBLOCK: a FIFO put there must not make the daemon wait.
  const int fd =
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    *error = Failure("opening", path, errno);
    return nullptr;
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    *error = "the rank's page " + path + " is not a regular file";
    close(fd);
    return nullptr;
  }
  return std::unique_ptr<PageReader>(new PageReader(fd));
}

PageReader::~PageReader() { close(fd_); }

bool PageReader::ReadAt(void* out, size_t bytes, size_t offset,
                        std::string* error) {
  ssize_t n;
  do {
    n = pread(fd_, out, bytes, static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(bytes)) return true;
  *error = n < 0 ? std::string("reading the rank's page: ") + strerror(errno)
                 : "the rank's page is shorter than 4096 bytes";
  return false;
}

PageReader::Result PageReader::Read(RankPage* page, std::string* error) {
  constexpr size_t kSequenceAt = kWordSequence * sizeof(uint64_t);
  PageWords words;
  for (int i = 0; i < kTries; ++i) {
    uint64_t before = 0;
    uint64_t after = 0;
    if (!ReadAt(&before, sizeof(before), kSequenceAt, error)) {
      return Result::kBad;
    }
    if (before % 2 != 0) continue;
    // The kernel copies in no order that is promised: a full barrier keeps
    // the copies of the words between the two of the number.
    __sync_synchronize();
    if (!ReadAt(words.data(), kPageBytes, 0, error)) return Result::kBad;
    __sync_synchronize();
    if (!ReadAt(&after, sizeof(after), kSequenceAt, error)) {
      return Result::kBad;
    }
    if (before != after) continue;
    return DecodePage(words, page, error) ? Result::kOk : Result::kBad;
  }
  *error = "the rank's page is being written";
  return Result::kBusy;
}

PageReader::Result PageReader::ReadLast(RankPage* page, std::string* error) {
  const Result result = Read(page, error);
  if (result != Result::kBusy) return result;
  PageWords words;
  if (!ReadAt(words.data(), kPageBytes, 0, error)) return Result::kBad;
  return DecodePage(words, page, error) ? Result::kOk : Result::kBad;
}

}  // namespace lockstep::worker::task
