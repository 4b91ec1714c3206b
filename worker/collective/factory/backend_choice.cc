#include "worker/collective/factory/backend_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "common/base/ascii.h"
#include "worker/collective/hierarchical/plan_line.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective {
namespace {

constexpr size_t kMaxPartBytes = 2048;
constexpr size_t kOfferParts = 6;
constexpr char kSeparator = '\t';
constexpr std::string_view kLineVersion = "choice2";

// Text of others goes into sentences and logs.
std::string Printable(std::string_view text) {
  std::string printable(text.substr(0, kMaxPartBytes));
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return printable;
}

std::optional<int> Number(std::string_view text) {
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

std::vector<int> HostsOf(const std::vector<RankOffer>& offers) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  int next = 0;
  for (const RankOffer& offer : offers) {
    if (offer.host.empty()) {
      hosts.push_back(next++);
      continue;
    }
    const auto [it, is_new] = numbers.emplace(offer.host, next);
    if (is_new) ++next;
    hosts.push_back(it->second);
  }
  return hosts;
}

// Ranks of each host.
std::vector<int> Sizes(const std::vector<int>& hosts) {
  std::vector<int> sizes;
  for (const int host : hosts) {
    if (host >= static_cast<int>(sizes.size())) sizes.resize(host + 1);
    ++sizes[host];
  }
  return sizes;
}

// "" when each rank can use nccl.
std::string WhyNotNccl(const std::vector<RankOffer>& offers) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const RankOffer& offer = offers[rank];
    if (offer.device.empty()) {
      return fmt::format("rank {} {}", rank, offer.why_not);
    }
    if (offer.library != offers[0].library) {
      return fmt::format("rank 0 has {}, rank {} has {}", offers[0].library,
                         rank, offer.library);
    }
    const auto [owner, is_new] = owners.emplace(offer.device, rank);
    if (!is_new) {
      return fmt::format("ranks {} and {} have the same GPU, {}", owner->second,
                         rank, offer.device);
    }
  }
  return "";
}

bool AnyGpu(const std::vector<RankOffer>& offers) {
  return std::any_of(offers.begin(), offers.end(), [](const RankOffer& o) {
    return !o.device.empty() || o.why_not != "has no GPU";
  });
}

std::string Where(const std::vector<RankOffer>& offers, size_t rank) {
  return fmt::format("rank {} on {}", rank,
                     offers[rank].host_name.empty() ? "a host without a name"
                                                    : offers[rank].host_name);
}

std::string PerHost(const std::vector<int>& sizes) {
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  return *least == *most ? fmt::format("{} on each", *least)
                         : fmt::format("{} to {} on each", *least, *most);
}

BackendChoice ChooseAuto(const std::vector<RankOffer>& offers,
                         std::vector<int> hosts) {
  const std::string why_not = WhyNotNccl(offers);
  const size_t ranks = offers.size();
  if (why_not.empty()) {
    return {"nccl", std::move(hosts),
            fmt::format(
                "backend nccl: each of the {} ranks has a GPU of its own ({})",
                ranks, offers[0].library)};
  }
  const std::vector<int> sizes = Sizes(hosts);
  BackendChoice choice;
  const int most = *std::max_element(sizes.begin(), sizes.end());
  if (most > kMaxShmRanks) {
    choice.backend = "tcp";
    choice.why = fmt::format(
        "backend tcp: {} ranks are on one host, and at most {} share memory",
        most, kMaxShmRanks);
  } else if (sizes.size() == 1) {
    choice.backend = "shm";
    choice.why =
        fmt::format("backend shm: all {} ranks are on one host", ranks);
  } else if (sizes.size() == ranks) {
    choice.backend = "tcp";
    choice.why = fmt::format(
        "backend tcp: each of the {} ranks has a host of its own", ranks);
  } else {
    choice.backend = "hierarchical";
    choice.why =
        fmt::format("backend hierarchical: {} ranks are on {} hosts, {}", ranks,
                    sizes.size(), PerHost(sizes));
  }
  if (AnyGpu(offers)) choice.why += "; not nccl: " + why_not;
  choice.hosts = std::move(hosts);
  return choice;
}

StatusOr<BackendChoice> Grant(const std::string& wish,
                              const std::vector<RankOffer>& offers,
                              std::vector<int> hosts) {
  if (wish == "shm") {
    const auto other =
        std::find_if(hosts.begin(), hosts.end(), [](int h) { return h != 0; });
    if (other != hosts.end()) {
      return FailedPrecondition(
          "backend shm needs all ranks on one host, as one user: {}, {}",
          Where(offers, 0), Where(offers, other - hosts.begin()));
    }
  }
  if (wish == "shm" || wish == "hierarchical") {
    const std::vector<int> sizes = Sizes(hosts);
    const int most = *std::max_element(sizes.begin(), sizes.end());
    if (most > kMaxShmRanks) {
      return FailedPrecondition(
          "backend {} is for at most {} ranks on one host, not for {}", wish,
          kMaxShmRanks, most);
    }
  }
  if (wish == "nccl") {
    const std::string why_not = WhyNotNccl(offers);
    if (!why_not.empty()) {
      return FailedPrecondition("backend nccl cannot be used: {}", why_not);
    }
  }
  return BackendChoice{wish, std::move(hosts),
                       fmt::format("backend {}: asked for by name", wish)};
}

// Exactly `size` ranks, hosts numbered by their first ranks.
std::optional<std::vector<int>> DecodeHosts(std::string_view text, int size) {
  std::vector<int> hosts;
  int next = 0;
  for (const std::string_view run : SplitText(text, ',')) {
    const size_t star = run.find('*');
    const auto host = Number(run.substr(0, star));
    const auto count = star == std::string_view::npos
                           ? std::optional<int>(1)
                           : Number(run.substr(star + 1));
    if (!host || !count || *host > next || *count < 1 ||
        *count > size - static_cast<int>(hosts.size())) {
      return std::nullopt;
    }
    next = std::max(next, *host + 1);
    hosts.insert(hosts.end(), *count, *host);
  }
  if (static_cast<int>(hosts.size()) != size) return std::nullopt;
  return hosts;
}

Status FindFit(const BackendChoice& choice, std::string_view line) {
  const int size = static_cast<int>(choice.hosts.size());
  const std::string_view backend = line.substr(0, line.find(' '));
  if (backend != choice.backend) {
    return InvalidArgument(
        "the reduction plan is for backend {}, and these ranks reduce with {}",
        Printable(backend), choice.backend);
  }
  if (backend == "tcp") return tcp::ParsePlan(line, size).status();
  if (backend == "hierarchical") {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string between,
                              hierarchical::BetweenPlanOf(line, choice.hosts));
    const int hosts =
        1 + *std::max_element(choice.hosts.begin(), choice.hosts.end());
    if (hosts == 1 && between.empty()) return OkStatus();
    return tcp::ParsePlan(between, hosts).status();
  }
  const std::string ours = fmt::format("shm ranks={}", size);
  if (backend == "shm" && line == ours) return OkStatus();
  return InvalidArgument(
      "the reduction plan is \"{}\", and that of these ranks "
      "is {}",
      Printable(line), backend == "shm" ? '"' + ours + '"' : "always empty");
}

Status NoChoice() {
  return InvalidArgument("bytes that are not a backend choice");
}

}  // namespace

std::string EncodeOffer(const RankOffer& offer) {
  std::string text;
  for (const std::string* part : {&offer.device, &offer.library, &offer.why_not,
                                  &offer.host, &offer.host_name, &offer.wish}) {
    if (part != &offer.device) text += kSeparator;
    text += Printable(*part);
  }
  return text;
}

StatusOr<RankOffer> DecodeOffer(std::string_view bytes) {
  const std::vector<std::string_view> parts = SplitText(bytes, kSeparator);
  if (parts.size() != kOfferParts) {
    return InvalidArgument("{} bytes that are not a backend offer",
                           bytes.size());
  }
  RankOffer offer;
  offer.device = Printable(parts[0]);
  offer.library = Printable(parts[1]);
  offer.why_not = Printable(parts[2]);
  offer.host = Printable(parts[3]);
  offer.host_name = Printable(parts[4]);
  offer.wish = Printable(parts[5]);
  if (offer.device.empty() && offer.why_not.empty()) {
    offer.why_not = "offers nothing and does not say why";
  }
  return offer;
}

StatusOr<BackendChoice> ChooseBackend(const std::vector<RankOffer>& offers) {
  if (offers.empty()) return InvalidArgument("there are no ranks");
  const std::string& wish = offers[0].wish;
  for (size_t rank = 1; rank < offers.size(); ++rank) {
    if (offers[rank].wish == wish) continue;
    return FailedPrecondition(
        "the ranks ask for different backends: rank 0 for {}, rank {} for {}",
        wish, rank, offers[rank].wish);
  }
  std::vector<int> hosts = HostsOf(offers);
  if (wish == "auto") return ChooseAuto(offers, std::move(hosts));
  return Grant(wish, offers, std::move(hosts));
}

std::vector<std::string> EncodeChoice(const StatusOr<BackendChoice>& choice,
                                      size_t piece_bytes) {
  std::string text;
  if (choice.ok()) {
    text = fmt::format("0\n{}\n{}\n{}\n{}", Printable(choice->backend),
                       Printable(choice->why),
                       hierarchical::HostRuns(choice->hosts), choice->plan);
  } else {
    text = fmt::format("{}\n{}\n{}", static_cast<int>(choice.status().code()),
                       Printable(Message(choice.status())),
                       Printable(ReasonOf(choice.status())));
  }
  // Room for the first line.
  const size_t room = piece_bytes - 32;
  const size_t pieces = (text.size() + room - 1) / room;
  std::vector<std::string> result;
  for (size_t i = 0; i < pieces; ++i) {
    result.push_back(
        (i == 0 ? fmt::format("{} {}\n", kLineVersion, pieces) : "") +
        text.substr(i * room, room));
  }
  return result;
}

StatusOr<int> PiecesOf(std::string_view first) {
  const std::string_view line = first.substr(0, first.find('\n'));
  if (line.size() <= kLineVersion.size() || !line.starts_with(kLineVersion)) {
    return NoChoice();
  }
  const auto pieces = Number(line.substr(kLineVersion.size() + 1));
  if (!pieces || *pieces < 1 || *pieces > 1024) return NoChoice();
  return *pieces;
}

StatusOr<BackendChoice> DecodeChoice(const std::vector<std::string>& pieces,
                                     int size) {
  if (pieces.empty()) return NoChoice();
  LOCKSTEP_ASSIGN_OR_RETURN(const int count, PiecesOf(pieces[0]));
  if (count != static_cast<int>(pieces.size())) return NoChoice();
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const std::vector<std::string_view> lines = SplitText(text, '\n');
  if (lines.size() < 3) return NoChoice();
  const auto code = Number(lines[1]);
  if (!code || *code > 16) return NoChoice();
  if (*code != 0) {
    Status error(static_cast<StatusCode>(*code), Printable(lines[2]));
    if (lines.size() == 3 || lines[3].empty()) return error;
    return WithReason(std::move(error), Printable(lines[3]));
  }
  if (lines.size() != 6 || lines[2].empty()) return NoChoice();
  auto hosts = DecodeHosts(lines[4], size);
  if (!hosts) return NoChoice();
  return BackendChoice{Printable(lines[2]), *std::move(hosts),
                       Printable(lines[3]), std::string(lines[5])};
}

Status CheckReductionPlan(const BackendChoice& choice, std::string_view line) {
  Status fits = FindFit(choice, line);
  if (fits.ok()) return fits;
  return WithReason(std::move(fits), kReasonPlanRefused);
}

}  // namespace lockstep::worker::collective
