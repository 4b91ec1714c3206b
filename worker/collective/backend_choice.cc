#include "worker/collective/backend_choice.h"

#include <algorithm>
#include <map>

#include "worker/collective/communicator.h"

namespace lockstep {
namespace {

constexpr size_t kMaxOfferBytes = 2048;
constexpr char kSeparator = '\t';

// Text of others goes into sentences and logs.
std::string Printable(std::string_view text) {
  std::string printable(text.substr(0, kMaxOfferBytes));
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return printable;
}

std::string KeyOf(int rank) { return fmt::format("backend/{}", rank); }

BackendChoice Gloo(std::string why) {
  return {.nccl = false, .why = "backend gloo: " + std::move(why)};
}

}  // namespace

std::string EncodeOffer(const RankOffer& offer) {
  return fmt::format("{}{}{}{}{}", Printable(offer.device), kSeparator,
                     Printable(offer.library), kSeparator,
                     Printable(offer.why_not));
}

StatusOr<RankOffer> DecodeOffer(std::string_view bytes) {
  const size_t first = bytes.find(kSeparator);
  const size_t second = first == std::string_view::npos
                            ? first
                            : bytes.find(kSeparator, first + 1);
  if (second == std::string_view::npos ||
      bytes.find(kSeparator, second + 1) != std::string_view::npos) {
    return InvalidArgument("{} bytes that are no offer of a backend",
                           bytes.size());
  }
  RankOffer offer;
  offer.device = Printable(bytes.substr(0, first));
  offer.library = Printable(bytes.substr(first + 1, second - first - 1));
  offer.why_not = Printable(bytes.substr(second + 1));
  if (offer.device.empty() && offer.why_not.empty()) {
    offer.why_not = "offers nothing and does not say why";
  }
  return offer;
}

BackendChoice ChooseBackend(const std::vector<RankOffer>& offers) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const RankOffer& offer = offers[rank];
    if (offer.device.empty()) {
      return Gloo(fmt::format("rank {} {}", rank, offer.why_not));
    }
    if (offer.library != offers[0].library) {
      return Gloo(fmt::format("rank 0 has {}, rank {} has {}",
                              offers[0].library, rank, offer.library));
    }
    const auto [owner, is_new] = owners.emplace(offer.device, rank);
    if (!is_new) {
      return Gloo(fmt::format("ranks {} and {} have the same GPU, {}",
                              owner->second, rank, offer.device));
    }
  }
  if (offers.empty()) return Gloo("there are no ranks");
  return {.nccl = true,
          .why = fmt::format(
              "backend nccl: each of the {} ranks has a GPU of its own ({})",
              offers.size(), offers[0].library)};
}

StatusOr<BackendChoice> AgreeOnBackend(const CommunicatorOptions& options,
                                       const RankOffer& mine) {
  LOCKSTEP_RETURN_IF_ERROR(
      options.rendezvous->Put(KeyOf(options.rank), EncodeOffer(mine)));
  if (mine.device.empty()) {
    return Gloo(fmt::format("rank {} {}", options.rank, mine.why_not));
  }
  std::vector<RankOffer> offers(options.size);
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) {
      offers[rank] = mine;
      continue;
    }
    auto bytes = options.rendezvous->Get(KeyOf(rank), options.forming_deadline);
    if (!bytes.ok()) {
      return Annotate(bytes.status(),
                      fmt::format("{}: waiting for rank {} to say whether it "
                                  "can use NCCL",
                                  options.label, rank));
    }
    auto offer = DecodeOffer(*bytes);
    if (!offer.ok()) {
      return Annotate(offer.status(),
                      fmt::format("{}: rank {} wrote", options.label, rank));
    }
    offers[rank] = *std::move(offer);
    // One that cannot is enough: the others need not be waited for.
    if (offers[rank].device.empty()) {
      return Gloo(fmt::format("rank {} {}", rank, offers[rank].why_not));
    }
  }
  return ChooseBackend(offers);
}

}  // namespace lockstep
