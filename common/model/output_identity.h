// The identity file of an output directory. It tells hosts whether they see the
// same directory (docs/formats/checkpoint.md). Pure.
#ifndef LOCKSTEP_COMMON_MODEL_OUTPUT_IDENTITY_H_
#define LOCKSTEP_COMMON_MODEL_OUTPUT_IDENTITY_H_

#include <algorithm>
#include <string_view>

namespace lockstep {

// The file holds the identity and a newline.
inline constexpr std::string_view kOutputIdentityFile = ".lockstep-directory";

// The part of a TaskPreparation that reads the file. A daemon with support for
// identities reports this part for every job with an output directory, even if
// there is nothing to do. The coordinator recognises older daemons, which never
// report an identity, by its absence.
inline constexpr std::string_view kOutputPart = "output";

// 32 lower-case hex digits.
inline bool IsOutputIdentity(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_OUTPUT_IDENTITY_H_
