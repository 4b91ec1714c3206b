#include "worker/collective/tcp/directory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "common/base/random.h"
#include "common/base/sha256.h"
#include "worker/collective/sockets.h"

namespace lockstep::worker::collective::tcp {
namespace {

constexpr char kVersion[] = "LTCP1";
// Where the plan is from.
constexpr char kGiven[] = "given";
constexpr char kMade[] = "made";
constexpr size_t kPartBytes = 30 << 10;
constexpr size_t kMaxParts = 4096;
constexpr size_t kMaxLine = 256;

std::string PlaceKey(int rank) { return fmt::format("tcp/place/{}", rank); }
std::string TableKey(size_t part) { return fmt::format("tcp/table/{}", part); }

std::string PlaceLine(int rank, int size, const Place& place) {
  return fmt::format("{} {} {} {} {} {}", kVersion, rank, size, place.address,
                     place.port, place.host);
}

template <typename T>
bool ParseNumber(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; words.size() < 8 && in >> word;) {
    words.push_back(word);
  }
  return words;
}

StatusOr<Place> ParsePlace(const std::string& line, int rank, int size) {
  const std::vector<std::string> words =
      line.size() <= kMaxLine ? Words(line) : std::vector<std::string>();
  Place place;
  int their_rank = -1;
  int their_size = -1;
  if (words.size() != 6 || words[0] != kVersion ||
      !ParseNumber(words[1], &their_rank) ||
      !ParseNumber(words[2], &their_size) || !ParseAddress(words[3]).ok() ||
      !ParseNumber(words[4], &place.port) || place.port == 0) {
    return FailedPrecondition(
        "rank {} published no address for tcp: it runs another version", rank);
  }
  if (their_rank != rank || their_size != size) {
    return FailedPrecondition("rank {} of {} says that it is rank {} of {}",
                              rank, size, their_rank, their_size);
  }
  place.address = words[3];
  place.host = words[5];
  return place;
}

HostSharing SharingOf(const std::vector<Place>& places) {
  std::set<std::string> hosts;
  for (const Place& place : places) hosts.insert(place.host);
  if (hosts.size() == places.size()) return HostSharing::kNone;
  return hosts.size() == 1 ? HostSharing::kAll : HostSharing::kSome;
}

// Rank 0's part: all lines, or why there are none.
StatusOr<std::string> Gather(const CommunicatorOptions& options,
                             const Place& mine, MonoTime deadline) {
  Plan plan;
  if (!options.reduction_plan.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(plan,
                              ParsePlan(options.reduction_plan, options.size));
  }
  std::vector<Place> places = {mine};
  std::string lines = PlaceLine(0, options.size, mine) + "\n";
  std::string missing;
  for (int rank = 1; rank < options.size; ++rank) {
    const auto line = options.rendezvous->Get(PlaceKey(rank), deadline);
    if (line.status().code() == StatusCode::kDeadlineExceeded) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
      continue;
    }
    if (!line.ok()) {
      return Annotate(line.status(),
                      fmt::format("asking for the address of rank {}", rank));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Place place,
                              ParsePlace(*line, rank, options.size));
    lines += PlaceLine(rank, options.size, place) + "\n";
    places.push_back(std::move(place));
  }
  if (!missing.empty()) {
    return DeadlineExceeded("rank {} did not come before the forming deadline",
                            missing);
  }
  const bool given = !options.reduction_plan.empty();
  if (!given) {
    plan = MakePlan(options.size, SharingOf(places));
  }
  return fmt::format("{}\n{} {}\n{}", PlanLine(plan, options.size),
                     given ? kGiven : kMade, RandomHex(16), lines);
}

// A table is "LTCP1 table PARTS\n" and its first part, then the others alone;
// or "LTCP1 error CODE\n" and a sentence.
Status Publish(const CommunicatorOptions& options,
               const StatusOr<std::string>& table) {
  if (!table.ok()) {
    return options.rendezvous->Put(
        TableKey(0), fmt::format("{} error {}\n{}", kVersion,
                                 static_cast<int>(table.status().code()),
                                 Message(table.status()).substr(0, 8192)));
  }
  const size_t parts = (table->size() + kPartBytes - 1) / kPartBytes;
  for (size_t part = 0; part < parts; ++part) {
    std::string value = table->substr(part * kPartBytes, kPartBytes);
    if (part == 0) {
      value = fmt::format("{} table {}\n{}", kVersion, parts, value);
    }
    LOCKSTEP_RETURN_IF_ERROR(options.rendezvous->Put(TableKey(part), value));
  }
  return OkStatus();
}

StatusOr<std::string> Fetch(const CommunicatorOptions& options) {
  const auto get = [&](size_t part) -> StatusOr<std::string> {
    auto value =
        options.rendezvous->Get(TableKey(part), options.forming_deadline);
    if (value.status().code() == StatusCode::kDeadlineExceeded) {
      return DeadlineExceeded(
          "rank 0 did not come before the forming deadline");
    }
    return value;
  };
  LOCKSTEP_ASSIGN_OR_RETURN(std::string table, get(0));
  const auto line =
      static_cast<size_t>(std::ranges::find(table, '\n') - table.begin());
  const std::vector<std::string> head = Words(table.substr(0, line));
  size_t number = 0;
  if (line == table.size() || head.size() != 3 || head[0] != kVersion ||
      !ParseNumber(head[2], &number)) {
    return FailedPrecondition(
        "rank 0 published no addresses for tcp: it runs another version");
  }
  table.erase(0, line + 1);
  if (head[1] == "error") {
    const bool known = number >= 1 && number <= 16;
    return Status(
        known ? static_cast<StatusCode>(number) : StatusCode::kUnknown, table);
  }
  if (number > kMaxParts) {
    return FailedPrecondition("rank 0 published {} parts of addresses", number);
  }
  for (size_t part = 1; part < number; ++part) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string more, get(part));
    table += more;
  }
  return table;
}

StatusOr<Directory> Parse(const std::string& table, int size) {
  Directory directory;
  std::istringstream in(table);
  std::string plan;
  std::string nonce;
  std::getline(in, plan);
  std::getline(in, nonce);
  auto decoded = ParsePlan(plan, size);
  if (!decoded.ok()) {
    return FailedPrecondition("rank 0 published no plan for tcp: {}",
                              Message(decoded.status()));
  }
  directory.plan = *decoded;
  directory.plan_given = nonce.starts_with(kGiven);
  for (int rank = 0; rank < size; ++rank) {
    std::string line;
    std::getline(in, line);
    LOCKSTEP_ASSIGN_OR_RETURN(Place place, ParsePlace(line, rank, size));
    directory.places.push_back(std::move(place));
  }
  directory.session = Sha256(table);
  return directory;
}

// Rank 0 gives up so much earlier that the others get its word in time.
MonoTime GatherDeadline(MonoTime deadline) {
  const Duration left = deadline - MonotonicNow();
  return deadline - std::clamp<Duration>(left / 10, Duration::zero(),
                                         std::chrono::milliseconds(300));
}

}  // namespace

StatusOr<Directory> Exchange(const CommunicatorOptions& options,
                             const Place& mine) {
  if (options.rank != 0) {
    LOCKSTEP_RETURN_IF_ERROR(options.rendezvous->Put(
        PlaceKey(options.rank), PlaceLine(options.rank, options.size, mine)));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string table, Fetch(options));
    return Parse(table, options.size);
  }
  const StatusOr<std::string> table =
      Gather(options, mine, GatherDeadline(options.forming_deadline));
  const Status published = Publish(options, table);
  if (!table.ok()) return table.status();
  LOCKSTEP_RETURN_IF_ERROR(published);
  return Parse(*table, options.size);
}

std::string MachineId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? RandomHex(16) : id;
}

}  // namespace lockstep::worker::collective::tcp
