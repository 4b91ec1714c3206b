#include "worker/collective/handshake.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/base/sha256.h"

namespace lockstep::worker::collective {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 10;
constexpr size_t kMaxSpecHashBytes = 64;
constexpr char kHelloMagic[8] = {'L', 'S', 'H', 'E', 'L', 'L', 'O', '1'};

// What one rank sends; integers little-endian, as every host we run on.
struct Record {
  char magic[8];
  uint64_t generation;
  uint32_t rank;
  uint32_t size;
  char spec_hash[kMaxSpecHashBytes];  // zero-padded
  uint8_t config[SHA256_DIGEST_LENGTH];
  Sha256Mac mac;  // of all bytes above
};
static_assert(sizeof(Record) == 152, "no padding");

// The text of a configuration in the second all-gather.
struct ConfigText {
  uint32_t bytes;
  char text[kMaxConfigBytes];
};

using Config = std::map<std::string, std::string>;

StatusOr<std::string> Canonical(const Config& config) {
  std::string text;
  for (const auto& [key, value] : config) {
    if (key.empty() || key.find_first_of("=\n") != std::string::npos ||
        value.find('\n') != std::string::npos) {
      return InvalidArgument("configuration key \"{}\" cannot be compared",
                             key);
    }
    text += fmt::format("{}={}\n", key, value);
  }
  if (text.size() > kMaxConfigBytes) {
    return InvalidArgument(
        "the configuration to compare has {} bytes; at most {} are compared, "
        "put a hash in place of long values",
        text.size(), kMaxConfigBytes);
  }
  return text;
}

Config ParseCanonical(const std::string& text) {
  Config config;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t equals = std::min(line.find('='), line.size());
    config[line.substr(0, equals)] =
        equals < line.size() ? line.substr(equals + 1) : "";
    begin = end + 1;
  }
  return config;
}

Sha256Mac Sign(const std::string& key, const Record& record) {
  return HmacSha256(
      key, {reinterpret_cast<const char*>(&record), offsetof(Record, mac)});
}

// Bytes of others, as text: printable or "?".
std::string Printable(const char* bytes, size_t size) {
  std::string text(bytes, strnlen(bytes, size));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text;
}

// All-gathers one T per rank.
template <typename T>
StatusOr<std::vector<T>> Gather(Communicator* communicator, const T& mine,
                                MonoTime deadline) {
  const size_t size = communicator->size();
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                            communicator->Allocate(size * sizeof(T)));
  auto* const all = static_cast<char*>(buffer->data);
  std::memcpy(all + communicator->rank() * sizeof(T), &mine, sizeof(T));
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Work> work,
      communicator->Start(
          {.kind = CollectiveKind::kAllGather,
           .slice = {buffer, 0, size * sizeof(T), DataType::kUint8}}));
  LOCKSTEP_RETURN_IF_ERROR(work->Wait(deadline));
  std::vector<T> result(size);
  std::memcpy(result.data(), all, size * sizeof(T));
  return result;
}

std::string HasValue(int rank, const Config& config, const std::string& key) {
  const auto it = config.find(key);
  if (it == config.end()) return fmt::format("rank {} has no {}", rank, key);
  return fmt::format("rank {} has {}={}", rank, key, it->second);
}

// The first key, by name, in which `theirs` differs from rank 0's.
std::string FirstDifference(int rank, const Config& theirs,
                            const Config& first) {
  Config all = theirs;
  all.insert(first.begin(), first.end());
  for (const auto& [key, unused] : all) {
    const auto a = theirs.find(key);
    const auto b = first.find(key);
    if (a != theirs.end() && b != first.end() && a->second == b->second) {
      continue;
    }
    return fmt::format("{}, {}", HasValue(rank, theirs, key),
                       HasValue(0, first, key));
  }
  return "";
}

class Handshaker {
 public:
  Handshaker(Communicator* communicator, const HandshakeOptions& options,
             MonoTime deadline)
      : communicator_(communicator), options_(options), deadline_(deadline) {}

  Status Run() {
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    const Record mine = MakeRecord();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Record> records,
                              Gather(communicator_, mine, deadline_));
    const Status verdict = Judge(mine, records);
    // Every rank has a verdict now, and breaks off. Not before all have it: a
    // rank that is still gathering would only learn that we left.
    if (!verdict.ok()) {
      const MonoTime soon = MonotonicNow() + std::chrono::seconds(2);
      (void)Finish({.kind = CollectiveKind::kBarrier},
                   std::min(deadline_, soon));
    }
    return verdict;
  }

 private:
  Status Prepare() {
    LOCKSTEP_ASSIGN_OR_RETURN(config_, Canonical(options_.config));
    if (options_.spec_hash.size() > kMaxSpecHashBytes) {
      return InvalidArgument("a spec hash of {} bytes is too long",
                             options_.spec_hash.size());
    }
    if (options_.key.empty()) return InvalidArgument("the job key is empty");
    return OkStatus();
  }

  Status Finish(const Operation& operation, MonoTime deadline) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Work> work,
                              communicator_->Start(operation));
    return work->Wait(deadline);
  }

  Status Judge(const Record& mine, const std::vector<Record>& records) {
    for (int rank = 0; rank < communicator_->size(); ++rank) {
      LOCKSTEP_RETURN_IF_ERROR(CheckClearFields(rank, records[rank], mine));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckKeys(records));
    // Every rank sees the same fingerprints, so all take the same branch.
    for (const Record& record : records) {
      if (std::memcmp(record.config, records[0].config,
                      sizeof(record.config)) != 0) {
        return ExplainConfigs(records);
      }
    }
    return OkStatus();
  }

  Record MakeRecord() const {
    Record record{};
    std::memcpy(record.magic, kHelloMagic, sizeof(kHelloMagic));
    record.generation = options_.generation;
    record.rank = static_cast<uint32_t>(communicator_->rank());
    record.size = static_cast<uint32_t>(communicator_->size());
    std::memcpy(record.spec_hash, options_.spec_hash.data(),
                options_.spec_hash.size());
    std::memcpy(record.config, Sha256(config_).data(), sizeof(record.config));
    record.mac = Sign(options_.key, record);
    return record;
  }

  // Not authenticated yet, but the most helpful: an older generation also has
  // an older key.
  Status CheckClearFields(int rank, const Record& theirs,
                          const Record& mine) const {
    const int me = communicator_->rank();
    if (std::memcmp(theirs.magic, mine.magic, sizeof(kHelloMagic)) != 0) {
      return WithReason(
          Unauthenticated("rank {} sent an unknown handshake: it runs another "
                          "version, or is not a rank of this job",
                          rank),
          kReasonWrongJobKey);
    }
    if (theirs.generation != mine.generation) {
      return WithReason(
          FailedPrecondition("rank {} is of generation {}, rank {} of {}", rank,
                             theirs.generation, me, mine.generation),
          kReasonOtherGeneration);
    }
    if (std::memcmp(theirs.spec_hash, mine.spec_hash, kMaxSpecHashBytes) != 0) {
      return WithReason(FailedPrecondition(
                            "rank {} has cluster spec {}, rank {} has {}", rank,
                            Printable(theirs.spec_hash, kMaxSpecHashBytes), me,
                            Printable(mine.spec_hash, kMaxSpecHashBytes)),
                        kReasonOtherSpec);
    }
    if (theirs.rank != static_cast<uint32_t>(rank) ||
        theirs.size != mine.size) {
      return WithReason(
          FailedPrecondition("rank {} of {} says that it is rank {} of {}",
                             rank, mine.size, theirs.rank, theirs.size),
          kReasonOtherSpec);
    }
    return OkStatus();
  }

  Status CheckKeys(const std::vector<Record>& records) const {
    std::string wrong;
    int count = 0;
    for (int rank = 0; rank < communicator_->size(); ++rank) {
      const Record& record = records[rank];
      if (EqualMacs(Sign(options_.key, record), record.mac)) continue;
      wrong += fmt::format("{}{}", wrong.empty() ? "" : ", ", rank);
      ++count;
    }
    if (count == 0) return OkStatus();
    const int me = communicator_->rank();
    // When all others differ from us, it may be us.
    const bool perhaps_me = count == communicator_->size() - 1;
    return WithReason(
        Unauthenticated("wrong job key: rank {} signed with another key than "
                        "rank {}{}",
                        wrong, me,
                        perhaps_me ? " (either may be the wrong one)" : ""),
        kReasonWrongJobKey);
  }

  Status ExplainConfigs(const std::vector<Record>& records) {
    ConfigText mine{};
    mine.bytes = static_cast<uint32_t>(config_.size());
    std::memcpy(mine.text, config_.data(), config_.size());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<ConfigText> texts,
                              Gather(communicator_, mine, deadline_));
    std::vector<Config> configs;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      const size_t bytes = std::min<size_t>(texts[rank].bytes, kMaxConfigBytes);
      const std::string text(texts[rank].text, bytes);
      // The fingerprint was signed, the text is not.
      if (std::memcmp(Sha256(text).data(), records[rank].config,
                      sizeof(records[rank].config)) != 0) {
        return Unauthenticated(
            "rank {} sent a configuration that does not match its fingerprint",
            rank);
      }
      configs.push_back(ParseCanonical(text));
    }
    for (size_t rank = 1; rank < configs.size(); ++rank) {
      const std::string difference =
          FirstDifference(static_cast<int>(rank), configs[rank], configs[0]);
      if (difference.empty()) continue;
      return WithReason(
          FailedPrecondition("the ranks are configured differently: {}",
                             difference),
          kReasonConfigMismatch);
    }
    return Internal("fingerprints differ but configurations do not");
  }

  Communicator* const communicator_;
  const HandshakeOptions& options_;
  const MonoTime deadline_;
  std::string config_;
};

}  // namespace

Status Handshake(Communicator* communicator, const HandshakeOptions& options,
                 MonoTime deadline) {
  const Status status = Handshaker(communicator, options, deadline).Run();
  if (!status.ok()) {
    // A rank that refused its own options would leave the others waiting.
    communicator->Abort(fmt::format("handshake failed: {}", Message(status)));
    return Annotate(status, options.label);
  }
  return status;
}

}  // namespace lockstep::worker::collective
