// Text that may travel in a message: protobuf refuses a whole message for one
// byte that is not UTF-8, and an error may quote any byte. PURE.
#ifndef LOCKSTEP_WORKER_RANK_LINK_TEXT_H_
#define LOCKSTEP_WORKER_RANK_LINK_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::worker::rank_link {

inline constexpr size_t kMaxSentence = 4096;

// At most `limit` bytes of `text`, cut between characters, each byte that is
// not part of valid UTF-8 replaced by '?'.
std::string CleanText(std::string_view text, size_t limit = kMaxSentence);

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_TEXT_H_
