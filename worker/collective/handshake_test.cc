#include "worker/collective/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <vector>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using ::testing::HasSubstr;

// What each of `n` ranks gets when rank r changes its options by change(r).
std::vector<Status> Shake(
    int n, const std::function<void(int, HandshakeOptions*)>& change) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  std::vector<Status> results(n);
  SpawnRanks(n, [&](int rank) {
    auto form = TestOptions(rank, n, &store);
    if (n == 1) form.backend = "auto";
    auto communicator = FormCommunicator(form);
    if (!communicator.ok()) {
      // Another rank may have left while this one was still forming.
      results[rank] = communicator.status();
      return;
    }
    HandshakeOptions options;
    options.label = "job test g3";
    options.generation = 3;
    options.spec_hash = "abcdef";
    options.key = "a key of the third generation";
    options.config = {{"batch_size", "64"}, {"model", "cnn"}, {"seed", "1"}};
    change(rank, &options);
    results[rank] = Handshake(communicator->get(), options,
                              MonotonicNow() + std::chrono::seconds(20));
  });
  return results;
}

void ExpectAll(const std::vector<Status>& results, StatusCode code,
               const char* reason, const std::vector<std::string>& texts) {
  for (const Status& status : results) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_THAT(Message(status), HasSubstr("job test g3: "));
    for (const auto& text : texts) {
      EXPECT_THAT(Message(status), HasSubstr(text));
    }
  }
}

TEST(HandshakeTest, EqualRanksAgree) {
  for (const int n : {1, 2, 4}) {
    for (const Status& status : Shake(n, [](int, HandshakeOptions*) {})) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST(HandshakeTest, DifferentValueIsNamedWithBothRanks) {
  ExpectAll(Shake(3,
                  [](int rank, HandshakeOptions* options) {
                    if (rank != 1) return;
                    options->config["batch_size"] = "32";
                    options->config["seed"] = "2";
                  }),
            StatusCode::kFailedPrecondition, kReasonConfigMismatch,
            {"rank 1 has batch_size=32, rank 0 has batch_size=64"});
}

TEST(HandshakeTest, MissingAndExtraKeysAreNamed) {
  ExpectAll(Shake(2,
                  [](int rank, HandshakeOptions* options) {
                    if (rank == 1) options->config.erase("model");
                  }),
            StatusCode::kFailedPrecondition, kReasonConfigMismatch,
            {"rank 1 has no model, rank 0 has model=cnn"});
  ExpectAll(Shake(2,
                  [](int rank, HandshakeOptions* options) {
                    if (rank == 1) options->config["nesterov"] = "a=b";
                  }),
            StatusCode::kFailedPrecondition, kReasonConfigMismatch,
            {"rank 1 has nesterov=a=b, rank 0 has no nesterov"});
}

TEST(HandshakeTest, LongConfigurationsCompareToo) {
  ExpectAll(Shake(2,
                  [](int rank, HandshakeOptions* options) {
                    options->config["long"] = std::string(16000, 'x');
                    options->config["z"] = rank == 0 ? "1" : "2";
                  }),
            StatusCode::kFailedPrecondition, kReasonConfigMismatch,
            {"rank 1 has z=2, rank 0 has z=1"});
}

TEST(HandshakeTest, WrongKeyIsSaidToBeOne) {
  const auto results = Shake(3, [](int rank, HandshakeOptions* options) {
    // Other differences must not hide it.
    if (rank == 2) options->key = "something else";
    options->config["seed"] = std::to_string(rank);
  });
  ExpectAll(results, StatusCode::kUnauthenticated, kReasonWrongJobKey,
            {"wrong job key"});
  EXPECT_THAT(Message(results[0]),
              HasSubstr("rank 2 signed with another key than rank 0"));
  EXPECT_THAT(Message(results[2]), HasSubstr("rank 0, 1 signed"));
  EXPECT_THAT(Message(results[2]), HasSubstr("either may be"));
}

TEST(HandshakeTest, OtherGenerationIsNamed) {
  const auto results = Shake(2, [](int rank, HandshakeOptions* options) {
    if (rank != 1) return;
    options->generation = 2;
    options->key = "a key of the second generation";
  });
  ExpectAll(results, StatusCode::kFailedPrecondition, kReasonOtherGeneration,
            {});
  EXPECT_THAT(Message(results[0]),
              HasSubstr("rank 1 is of generation 2, rank 0 of 3"));
}

TEST(HandshakeTest, OtherSpecIsNamed) {
  const auto results = Shake(2, [](int rank, HandshakeOptions* options) {
    if (rank == 1) options->spec_hash = "12345";
  });
  ExpectAll(results, StatusCode::kFailedPrecondition, kReasonOtherSpec, {});
  EXPECT_THAT(Message(results[0]),
              HasSubstr("rank 1 has cluster spec 12345, rank 0 has abcdef"));
}

TEST(HandshakeTest, BadOptionsOfOneRankEndAll) {
  const auto break_it = [](const std::function<void(HandshakeOptions*)>& fn) {
    const auto results = Shake(2, [&](int rank, HandshakeOptions* options) {
      if (rank == 1) fn(options);
    });
    EXPECT_EQ(results[1].code(), StatusCode::kInvalidArgument) << results[1];
    EXPECT_EQ(results[0].code(), StatusCode::kUnavailable) << results[0];
  };
  break_it([](HandshakeOptions* o) { o->key.clear(); });
  break_it([](HandshakeOptions* o) { o->spec_hash.assign(65, 'x'); });
  break_it([](HandshakeOptions* o) { o->config["a=b"] = "c"; });
  break_it([](HandshakeOptions* o) { o->config["a"] = "b\nc=d"; });
  break_it([](HandshakeOptions* o) { o->config["a"].assign(17000, 'x'); });
}

}  // namespace
}  // namespace lockstep::worker::collective
