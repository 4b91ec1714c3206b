#include "worker/agent/prepare/prefetch_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::IsEmpty;
using testing::SizeIs;

class PrefetchCoreTest : public testing::Test {
 protected:
  static ImageContent Image(const std::string& name,
                            const std::string& id = "") {
    return {name, id, "", ""};
  }
  static Package Code(char digit) {
    return {"sha256:" + std::string(64, digit), 7, PackageFormat::kTree,
            "t.tar.gz"};
  }
  void Want(std::vector<ImageContent> images,
            std::vector<Package> packages = {}) {
    core_.Want({1, std::move(images), std::move(packages)}, now_);
  }
  static PrefetchCore::Result Good(const std::string& id) {
    PrefetchCore::Result result;
    result.content = ImageContent{"x", id, "", ""};
    result.fetched = true;
    result.duration = 3s;
    return result;
  }
  static PrefetchCore::Result Bad(Status status) {
    PrefetchCore::Result result;
    result.status = std::move(status);
    return result;
  }
  void Done(const ImageContent& image, PrefetchCore::Result result) {
    core_.OnDone(PrefetchCore::KeyOf(image), std::move(result), now_);
  }

  PrefetchCore core_{{10s, 60s, 5s}};
  MonoTime now_{1000s};
};

TEST_F(PrefetchCoreTest, OneImageAndOnePackageAtATimeInTheirOrder) {
  Want({Image("a"), Image("b")}, {Code('1'), Code('2')});
  EXPECT_EQ(core_.BeginImage(now_), Image("a"));
  EXPECT_EQ(core_.BeginImage(now_), std::nullopt);
  EXPECT_EQ(core_.BeginPackage(now_), Code('1'));
  EXPECT_EQ(core_.BeginPackage(now_), std::nullopt);
  Done(Image("a"), Good("sha256:a"));
  EXPECT_EQ(core_.BeginImage(now_), Image("b"));
  const auto report = core_.Report();
  ASSERT_THAT(report, SizeIs(4));
  EXPECT_TRUE(report[0].ready);
  EXPECT_TRUE(report[0].fetched);
  EXPECT_EQ(report[0].content->id, "sha256:a");
  EXPECT_EQ(report[0].duration, 3s);
  EXPECT_FALSE(report[1].ready);
  EXPECT_EQ(report[2].package_digest, Code('1').digest);
}

TEST_F(PrefetchCoreTest, WhatIsHereIsNotFetchedAgainAsLongAsItIsWanted) {
  Want({Image("a")});
  ASSERT_TRUE(core_.BeginImage(now_));
  Done(Image("a"), Good("sha256:a"));
  Want({Image("b"), Image("a")});
  ASSERT_THAT(core_.Report(), SizeIs(2));
  EXPECT_TRUE(core_.Report()[1].ready);
  EXPECT_EQ(core_.BeginImage(now_), Image("b"));
  // Another content of the name is another item.
  Done(Image("b"), Good("sha256:b"));
  Want({Image("a", "sha256:c")});
  EXPECT_EQ(core_.BeginImage(now_), Image("a", "sha256:c"));
  // Of what was not wanted for a moment nothing is known: it may be gone.
  Done(Image("a", "sha256:c"), Good("sha256:c"));
  Want({});
  EXPECT_THAT(core_.Report(), IsEmpty());
  EXPECT_EQ(core_.NextDeadline(), std::nullopt);
  Want({Image("a")});
  EXPECT_EQ(core_.BeginImage(now_), Image("a"));
}

TEST_F(PrefetchCoreTest, AFailureIsToldAndTriedAgainLaterAndLater) {
  Want({Image("a"), Image("b")});
  ASSERT_EQ(core_.BeginImage(now_), Image("a"));
  Done(Image("a"), Bad(FailedPrecondition("no such image")));
  EXPECT_EQ(core_.Report()[0].error, "no such image");
  // It keeps nobody.
  ASSERT_EQ(core_.BeginImage(now_), Image("b"));
  Done(Image("b"), Good("sha256:b"));
  EXPECT_EQ(core_.BeginImage(now_), std::nullopt);
  for (const Duration wait : {10s, 20s, 40s, 60s, 60s}) {
    EXPECT_EQ(core_.NextDeadline(), now_ + wait);
    now_ += wait - 1s;
    EXPECT_EQ(core_.BeginImage(now_), std::nullopt);
    now_ += 1s;
    ASSERT_EQ(core_.BeginImage(now_), Image("a"));
    Done(Image("a"), Bad(FailedPrecondition("no such image")));
  }
  now_ += 60s;
  ASSERT_TRUE(core_.BeginImage(now_));
  Done(Image("a"), Good("sha256:a"));
  EXPECT_EQ(core_.Report()[0].error, "");
  EXPECT_TRUE(core_.Report()[0].ready);
}

TEST_F(PrefetchCoreTest, WhatNobodyWantsAnyMoreIsEndedAfterAWhile) {
  Want({Image("a"), Image("b")});
  ASSERT_TRUE(core_.BeginImage(now_));
  const std::string key = PrefetchCore::KeyOf(Image("a"));
  EXPECT_FALSE(core_.IsUnwanted(key, now_));
  Want({Image("b")});
  EXPECT_THAT(core_.Report(), SizeIs(1));
  EXPECT_FALSE(core_.Wants(key));
  EXPECT_FALSE(core_.IsUnwanted(key, now_ + 4s));
  now_ += 3s;
  Want({Image("b")});
  EXPECT_TRUE(core_.IsUnwanted(key, now_ + 2s));
  // It still runs: nothing else is begun beside it.
  EXPECT_EQ(core_.BeginImage(now_), std::nullopt);
  Done(Image("a"), Bad(Cancelled("ended")));
  EXPECT_EQ(core_.BeginImage(now_), Image("b"));
  EXPECT_TRUE(core_.IsUnwanted(key, now_));
}

TEST_F(PrefetchCoreTest, WantedAgainBeforeItsEndItGoesOn) {
  Want({Image("a")});
  ASSERT_TRUE(core_.BeginImage(now_));
  Want({});
  now_ += 4s;
  Want({Image("a")});
  EXPECT_FALSE(core_.IsUnwanted(PrefetchCore::KeyOf(Image("a")), now_ + 60s));
  // Cancelled all the same: at once once more.
  Done(Image("a"), Bad(Cancelled("ended")));
  EXPECT_EQ(core_.Report()[0].error, "");
  EXPECT_EQ(core_.BeginImage(now_), Image("a"));
}

TEST_F(PrefetchCoreTest, NewsOfNothingIsNoNews) {
  Done(Image("a"), Good("sha256:a"));
  EXPECT_THAT(core_.Report(), IsEmpty());
  Want({Image("a")});
  Done(Image("a"), Good("sha256:a"));
  EXPECT_FALSE(core_.Report()[0].ready);
}

}  // namespace
}  // namespace lockstep::worker::agent
