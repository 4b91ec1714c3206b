// For tests of Session: the environment that a worker daemon sets for a rank.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_TEST_UTIL_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "worker/rank_link/client.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::runtime {

inline std::string RankNonce(int rank) {
  return "nonce-" + std::to_string(rank);
}

// Session::Join reads these variables. `link` is the socket of the daemon.
inline void SetRankEnvironment(const std::string& link, const std::string& job,
                               uint64_t generation, int rank) {
  const int fd = ::memfd_create("nonce", 0);
  const std::string nonce = RankNonce(rank);
  ASSERT_EQ(::write(fd, nonce.data(), nonce.size()),
            static_cast<ssize_t>(nonce.size()));
  ::setenv(rank_link::kLinkVariable, link.c_str(), 1);
  ::setenv(rank_link::kJobVariable, job.c_str(), 1);
  ::setenv(rank_link::kGenerationVariable, std::to_string(generation).c_str(),
           1);
  ::setenv(rank_link::kRankVariable, std::to_string(rank).c_str(), 1);
  ::setenv(rank_link::kNonceFdVariable, std::to_string(fd).c_str(), 1);
}

// LightSession::Join reads these. Writes `file`, the rank's link file.
inline void SetProgramEnvironment(const std::string& file,
                                  const std::string& link,
                                  const std::string& job, uint64_t generation,
                                  int rank) {
  std::ofstream(file) << rank_link::LinkFileText(link, RankNonce(rank));
  ::setenv(rank_link::kLinkFileVariable, file.c_str(), 1);
  ::setenv(rank_link::kJobVariable, job.c_str(), 1);
  ::setenv(rank_link::kGenerationVariable, std::to_string(generation).c_str(),
           1);
  ::setenv(rank_link::kRankVariable, std::to_string(rank).c_str(), 1);
}

inline void ClearRankEnvironment() {
  for (const char* name :
       {rank_link::kLinkVariable, rank_link::kJobVariable,
        rank_link::kGenerationVariable, rank_link::kRankVariable,
        rank_link::kNonceFdVariable, rank_link::kLinkFileVariable}) {
    ::unsetenv(name);
  }
}

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_TEST_UTIL_H_
