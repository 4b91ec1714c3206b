#include "worker/collective/hierarchical/host_layout.h"

#include <cctype>
#include <cstdlib>

namespace lockstep::worker::collective::hierarchical {
namespace {

// What follows is a peer's words, whose ranks are global.
constexpr std::string_view kQuote = "it reported: ";

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

// Bytes of the number at the start of `text`; 0 where there is none or it is
// no rank's.
size_t NumberSize(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsDigit(text[size])) ++size;
  return size <= 6 ? size : 0;
}

// What may stand between two ranks of one list.
std::string_view Joint(std::string_view text) {
  for (const std::string_view joint : {", ", " and ", " or "}) {
    if (!text.starts_with(joint)) continue;
    const std::string_view rest = text.substr(joint.size());
    const size_t number = NumberSize(rest);
    // "and 2 ranks": how many, not which.
    if (number > 0 && !rest.substr(number).starts_with(" ranks")) {
      return text.substr(0, joint.size());
    }
  }
  return "";
}

class Translator {
 public:
  Translator(std::string_view text, const std::vector<int>& ranks, int size)
      : text_(text), ranks_(ranks), size_(size) {}

  std::string Run() {
    while (at_ < text_.size()) {
      if (Rest().starts_with(kQuote)) {
        Copy(Rest().size());
      } else if (StartsList()) {
        List();
      } else {
        result_ += text_[at_++];
      }
    }
    return std::move(result_);
  }

 private:
  std::string_view Rest() const { return text_.substr(at_); }

  void Copy(size_t bytes) {
    result_ += text_.substr(at_, bytes);
    at_ += bytes;
  }

  // At "rank 1" or "ranks 1"; copies the word.
  bool StartsList() {
    if (at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1]))) {
      return false;
    }
    for (const std::string_view word : {"rank ", "ranks "}) {
      if (Rest().starts_with(word) &&
          NumberSize(Rest().substr(word.size())) > 0) {
        Copy(word.size());
        return true;
      }
    }
    return false;
  }

  void List() {
    for (;;) {
      Number(true);
      const std::string_view joint = Joint(Rest());
      if (joint.empty()) break;
      Copy(joint.size());
    }
    constexpr std::string_view kOf = " of ";
    if (Rest().starts_with(kOf)) {
      Copy(kOf.size());
      Number(false);
    }
  }

  // A rank or, else, how many there are.
  void Number(bool is_rank) {
    const size_t bytes = NumberSize(Rest());
    const size_t number =
        std::strtoul(std::string(Rest().substr(0, bytes)).c_str(), nullptr, 10);
    if (bytes > 0 && is_rank && number < ranks_.size()) {
      result_ += std::to_string(ranks_[number]);
      at_ += bytes;
    } else if (bytes > 0 && !is_rank && number == ranks_.size()) {
      result_ += std::to_string(size_);
      at_ += bytes;
    } else {
      Copy(bytes);
    }
  }

  const std::string_view text_;
  const std::vector<int>& ranks_;
  const int size_;
  size_t at_ = 0;
  std::string result_;
};

}  // namespace

std::vector<int> HostLayout::Across(int rank) const {
  std::vector<int> across;
  if (hosts() == 1 || (!equal && !leader(rank))) return across;
  for (const std::vector<int>& local : ranks) {
    across.push_back(local[place[rank]]);
  }
  return across;
}

StatusOr<HostLayout> LayOutHosts(const std::vector<int>& hosts) {
  HostLayout layout;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const int host = hosts[rank];
    if (host < 0 || host > layout.hosts()) {
      return InvalidArgument("rank {} is on host {}, but there are {} before",
                             rank, host, layout.hosts());
    }
    if (host == layout.hosts()) layout.ranks.emplace_back();
    layout.place.push_back(static_cast<int>(layout.ranks[host].size()));
    layout.ranks[host].push_back(static_cast<int>(rank));
  }
  layout.host = hosts;
  for (const std::vector<int>& local : layout.ranks) {
    if (local.size() != layout.ranks[0].size()) layout.equal = false;
    if (local.back() - local.front() + 1 != static_cast<int>(local.size())) {
      layout.contiguous = false;
    }
  }
  layout.contiguous = layout.contiguous && layout.equal;
  return layout;
}

std::string TranslateRanks(std::string_view text, const std::vector<int>& ranks,
                           int size) {
  return Translator(text, ranks, size).Run();
}

}  // namespace lockstep::worker::collective::hierarchical
