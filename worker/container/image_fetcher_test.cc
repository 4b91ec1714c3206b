#include "worker/container/image_fetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace lockstep::worker::container {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

MonoTime Within(Duration d) { return MonotonicNow() + d; }

// Fetches until it is let go; only that is asked of it here.
class SlowEngine final : public ContainerEngine {
 public:
  const std::string& version() const override { return text_; }
  const std::string& program() const override { return text_; }
  bool can_limit() const override { return false; }
  bool reports() const override { return false; }
  bool confines_root() const override { return true; }
  bool in_tree() const override { return true; }
  std::vector<std::string> RunArguments(const ContainerPlan&) const override {
    return {};
  }
  std::vector<std::string> Environment() const override { return {}; }
  std::vector<std::string> ExecArguments(
      const ContainerCommand&) const override {
    return {};
  }
  std::vector<std::string> SignalArguments(const std::string&) const override {
    return {};
  }
  std::vector<std::string> InspectArguments(const std::string&) const override {
    return {};
  }
  std::vector<std::string> RemoveArguments(const std::string&) const override {
    return {};
  }
  Status Remove(const std::string&, MonoTime) override { return OkStatus(); }
  StatusOr<std::vector<FoundContainer>> List(const std::string&,
                                             MonoTime) override {
    return std::vector<FoundContainer>();
  }
  StatusOr<ImageHere> EnsureImage(
      const ImageContent& wanted, MonoTime deadline,
      const std::function<bool(const std::string&)>& progress) override {
    ++begun;
    EXPECT_EQ(++running, 1);
    StatusOr<ImageHere> result = Fetch(wanted, deadline, progress);
    --running;
    return result;
  }

  std::atomic<int> begun = 0;
  std::atomic<int> running = 0;
  std::atomic<bool> go = false;

 private:
  StatusOr<ImageHere> Fetch(
      const ImageContent& wanted, MonoTime deadline,
      const std::function<bool(const std::string&)>& progress) {
    while (!go) {
      if (!progress("copying")) return Cancelled("ended");
      if (MonotonicNow() >= deadline) {
        return DeadlineExceeded("too long");
      }
      std::this_thread::sleep_for(5ms);
    }
    ImageHere here{wanted, true};
    here.content.id = wanted.id.empty() ? "sha256:1" : wanted.id;
    return here;
  }

  const std::string text_ = "slow";
};

class ImageFetcherTest : public testing::Test {
 protected:
  bool Eventually(const std::function<bool()>& condition) {
    for (const MonoTime end = Within(20s); Within(0s) < end;) {
      if (condition()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  StatusOr<ImageHere> Get(const ImageContent& wanted,
                          const ImageFetcher::Progress& progress = {},
                          Duration time = 20s) {
    return fetcher_.Get(engine_, wanted, Within(time), progress);
  }

  const ImageContent any_{"x:1", "", "", ""};
  const ImageContent settled_{"x:1", "sha256:2", "", "b"};
  std::shared_ptr<SlowEngine> engine_ = std::make_shared<SlowEngine>();
  ImageFetcher fetcher_;
};

TEST_F(ImageFetcherTest, WhoWantsTheSameJoinsTheFetchUnderWay) {
  std::atomic<int> told = 0;
  const auto get = [&] {
    const auto here = Get(any_, [&](const std::string& line) {
      if (line == "copying") ++told;
      return true;
    });
    EXPECT_TRUE(here.ok()) << here.status();
    if (here.ok()) {
      EXPECT_EQ(here->content.id, "sha256:1");
    }
  };
  std::thread first(get);
  EXPECT_TRUE(Eventually([&] { return told > 0; }));
  std::thread second(get);
  EXPECT_TRUE(Eventually([&] { return told > 4; }));
  engine_->go = true;
  first.join();
  second.join();
  EXPECT_EQ(engine_->begun, 1);
  // It was had: the next asks again.
  EXPECT_TRUE(Get(any_).ok());
  EXPECT_EQ(engine_->begun, 2);
}

TEST_F(ImageFetcherTest, OneWhoLeavesDoesNotEndItForTheOthers) {
  std::atomic<bool> stay = true;
  std::thread leaving([&] {
    EXPECT_EQ(Get(any_, [&](const std::string&) { return stay.load(); })
                  .status()
                  .code(),
              StatusCode::kCancelled);
  });
  EXPECT_TRUE(Eventually([&] { return engine_->begun == 1; }));
  std::atomic<bool> joined = false;
  std::thread staying([&] {
    const auto here = Get(any_, [&](const std::string& line) {
      joined = joined || line == "copying";
      return true;
    });
    EXPECT_TRUE(here.ok()) << here.status();
  });
  EXPECT_TRUE(Eventually([&] { return joined.load(); }));
  stay = false;
  leaving.join();
  engine_->go = true;
  staying.join();
  EXPECT_EQ(engine_->begun, 1);
}

TEST_F(ImageFetcherTest, ItEndsWhenNobodyWaitsAnyMore) {
  EXPECT_EQ(Get(any_, [](const std::string&) { return false; }).status().code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return engine_->running == 0; }));
  const Status late = Get(any_, {}, 300ms).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually([&] { return engine_->running == 0; }));
}

TEST_F(ImageFetcherTest, AnotherContentOfTheNameWaitsForTheFirst) {
  std::thread first([&] { EXPECT_TRUE(Get(any_).ok()); });
  EXPECT_TRUE(Eventually([&] { return engine_->begun == 1; }));
  std::atomic<int> told = 0;
  std::thread second([&] {
    const auto here = Get(settled_, [&](const std::string& line) {
      if (line == "copying") ++told;
      return true;
    });
    EXPECT_TRUE(here.ok()) << here.status();
    if (here.ok()) {
      EXPECT_EQ(here->content.id, "sha256:2");
    }
  });
  EXPECT_TRUE(Eventually([&] { return told > 1; }));
  EXPECT_EQ(engine_->begun, 1);
  engine_->go = true;
  first.join();
  second.join();
  EXPECT_EQ(engine_->begun, 2);
}

TEST_F(ImageFetcherTest, ItsEndEndsWhatIsUnderWay) {
  auto own = std::make_unique<ImageFetcher>();
  EXPECT_EQ(own->Get(engine_, any_, Within(20s),
                     [](const std::string&) { return false; })
                .status()
                .code(),
            StatusCode::kCancelled);
  own.reset();
  EXPECT_EQ(engine_->running, 0);
}

}  // namespace
}  // namespace lockstep::worker::container
