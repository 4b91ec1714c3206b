#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/pki/ca.h"
#include "common/pki/credentials.h"
#include "common/pki/identity.h"
#include "common/pki/validity.h"

namespace lockstep::pki {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

TEST(IdentityTest, EveryKindSurvivesTheWayThroughAUri) {
  const struct {
    Identity identity;
    const char* uri;
  } cases[] = {
      {CoordinatorIdentity("prod", "main"), "spiffe://prod/coordinator/main"},
      {WorkerIdentity("prod", "host-7"), "spiffe://prod/worker/host-7"},
      {UserIdentity("prod", UserRole::kViewer, "Ann"),
       "spiffe://prod/user/viewer/Ann"},
      {UserIdentity("p", UserRole::kSubmitter, "a.b_c-d"),
       "spiffe://p/user/submitter/a.b_c-d"},
      {UserIdentity("p", UserRole::kAdmin, "0"), "spiffe://p/user/admin/0"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(FormatIdentity(c.identity), c.uri);
    const StatusOr<Identity> parsed = ParseIdentity(c.uri);
    ASSERT_TRUE(parsed.ok()) << Message(parsed.status());
    EXPECT_EQ(*parsed, c.identity);
  }
}

TEST(IdentityTest, RefusesWhatIsNoNameOfOurs) {
  for (const char* uri : {"",
                          "spiffe://",
                          "spiffe://prod",
                          "spiffe://prod/",
                          "http://prod/worker/a",
                          "spiffe://prod/worker",
                          "spiffe://prod/worker/",
                          "spiffe://prod/worker/a/",
                          "spiffe://prod/worker/A",
                          "spiffe://prod/worker/-a",
                          "spiffe://prod/worker/a-",
                          "spiffe://Prod/worker/a",
                          "spiffe:///worker/a",
                          "spiffe://prod//a",
                          "spiffe://prod/agent/a",
                          "spiffe://prod/user/ann",
                          "spiffe://prod/user/root/ann",
                          "spiffe://prod/user/admin/",
                          "spiffe://prod/user/admin/..",
                          "spiffe://prod/user/admin/a b",
                          "spiffe://prod/user/admin/a/b",
                          "spiffe://prod/coordinator/a?x",
                          "spiffe://prod/insecure"}) {
    EXPECT_EQ(ParseIdentity(uri).status().code(), StatusCode::kInvalidArgument)
        << uri;
  }
  const std::string longest(63, 'a');
  EXPECT_TRUE(CheckNodeName("node name", longest).ok());
  EXPECT_FALSE(CheckNodeName("node name", longest + "a").ok());
  EXPECT_FALSE(CheckUserName(longest + "a").ok());
}

TEST(IdentityTest, AWorkerSpeaksForItsOwnNodeOnly) {
  EXPECT_TRUE(WorkerIdentity("c", "a").SpeaksForNode("a"));
  EXPECT_FALSE(WorkerIdentity("c", "a").SpeaksForNode("b"));
  EXPECT_FALSE(UserIdentity("c", UserRole::kAdmin, "a").SpeaksForNode("a"));
  EXPECT_TRUE(InsecureIdentity().SpeaksForNode("a"));
  EXPECT_FALSE(Identity().SpeaksForNode(""));
  EXPECT_FALSE(Identity().IsAdmin());
}

class PkiTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-pki-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    auto ca = CertificateAuthority::CreateIn(files_, Path("ca"), "prod", now_);
    ASSERT_TRUE(ca.ok()) << Message(ca.status());
    ca_ = std::make_unique<CertificateAuthority>(std::move(*ca));
  }
  void TearDown() override { EXPECT_TRUE(files_->RemoveAll(dir_).ok()); }

  std::string Path(const std::string& name) { return JoinPath(dir_, name); }
  CredentialPaths Issue(const std::string& dir, LeafRequest request) {
    const auto paths = IssueInto(files_, Path(dir), *ca_, request, now_);
    EXPECT_TRUE(paths.ok()) << Message(paths.status());
    return paths.value_or(CredentialPaths());
  }
  CredentialPaths IssueWorker(const std::string& dir) {
    return Issue(dir, {.identity = WorkerIdentity("prod", "a"),
                       .names = {"host-a", "10.0.0.1", "::1"}});
  }
  uint32_t Mode(const std::string& path) {
    const auto info = files_->Stat(path);
    return info.ok() ? info->mode : 0;
  }

  FileSystem* const files_ = RealFileSystem();
  // What was issued is used against real clocks elsewhere: be one.
  const WallTime now_ = SystemClock().Now().wall;
  std::string dir_;
  std::unique_ptr<CertificateAuthority> ca_;
};

TEST_F(PkiTest, KeysAreKeptFromOthers) {
  const CredentialPaths paths = IssueWorker("a");
  EXPECT_EQ(Mode(Path("ca")), 0700u);
  EXPECT_EQ(Mode(Path("ca/ca.key")), 0400u);
  EXPECT_EQ(Mode(Path("a")), 0700u);
  EXPECT_EQ(Mode(paths.key), 0600u);
}

TEST_F(PkiTest, WhatIsIssuedLoads) {
  const auto loaded = LoadCredentials(files_, IssueWorker("a"), now_);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(loaded->identity, WorkerIdentity("prod", "a"));
  EXPECT_GT(loaded->not_after, now_ + kLeafLifetime - 1h);
  EXPECT_LE(loaded->not_after, now_ + kLeafLifetime);
  EXPECT_GT(ca_->not_after(), now_ + kCaLifetime - 1h);
}

TEST_F(PkiTest, ALoadedCaIssuesAsTheFirst) {
  auto again = CertificateAuthority::Load(files_, Path("ca"), now_);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->cluster(), "prod");
  *ca_ = std::move(*again);
  EXPECT_TRUE(LoadCredentials(files_, IssueWorker("a"), now_).ok());
}

TEST_F(PkiTest, ACaIsNeverReplaced) {
  const Status s =
      CertificateAuthority::CreateIn(files_, Path("ca"), "prod", now_).status();
  EXPECT_EQ(s.code(), StatusCode::kAlreadyExists) << Message(s);
}

TEST_F(PkiTest, IssuesForItsOwnClusterAndSoundNamesOnly) {
  const LeafRequest refused[] = {
      {.identity = WorkerIdentity("other", "a"), .names = {}},
      {.identity = WorkerIdentity("prod", "A"), .names = {}},
      {.identity = InsecureIdentity(), .names = {}},
      {.identity = Identity(), .names = {}},
      {.identity = WorkerIdentity("prod", "a"), .names = {"a,URI:spiffe://x"}},
      {.identity = WorkerIdentity("prod", "a"), .names = {""}},
  };
  for (const LeafRequest& request : refused) {
    EXPECT_EQ(ca_->Issue(request, now_).status().code(),
              StatusCode::kInvalidArgument)
        << Describe(request.identity);
  }
}

TEST_F(PkiTest, ALeafNeverOutlivesItsCa) {
  const auto ca = CertificateAuthority::Create("prod", now_, 2h);
  ASSERT_TRUE(ca.ok());
  const auto paths =
      IssueInto(files_, Path("a"), *ca,
                {.identity = WorkerIdentity("prod", "a"), .names = {}}, now_);
  ASSERT_TRUE(paths.ok());
  const auto loaded = LoadCredentials(files_, *paths, now_);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(loaded->not_after, ca->not_after());
}

TEST_F(PkiTest, EachFaultHasItsSentence) {
  const struct {
    const char* name;
    std::function<void(CredentialPaths*)> damage;
    StatusCode code;
    std::string text;
  } cases[] = {
      {"missing certificate",
       [&](auto* p) { EXPECT_TRUE(files_->Remove(p->certificate).ok()); },
       StatusCode::kNotFound, "tls.crt does not exist"},
      {"missing key",
       [&](auto* p) { EXPECT_TRUE(files_->Remove(p->key).ok()); },
       StatusCode::kNotFound, "tls.key does not exist"},
      {"missing CA", [&](auto* p) { EXPECT_TRUE(files_->Remove(p->ca).ok()); },
       StatusCode::kNotFound, "ca.crt does not exist"},
      {"open key",
       [&](auto* p) { EXPECT_EQ(::chmod(p->key.c_str(), 0604), 0); },
       StatusCode::kPermissionDenied, "chmod 0600"},
      {"another's key", [&](auto* p) { p->key = IssueWorker("b").key; },
       StatusCode::kInvalidArgument, "does not belong to the certificate"},
      {"not a certificate",
       [&](auto* p) {
         EXPECT_TRUE(files_->WriteAtomic(p->certificate, "junk").ok());
       },
       StatusCode::kInvalidArgument, "not a PEM certificate"},
      {"not a key", [&](auto* p) { p->key = p->ca; },
       StatusCode::kPermissionDenied, "ca.crt"},
      {"damaged key",
       [&](auto* p) {
         EXPECT_TRUE(files_->WriteAtomic(p->key, "junk", 0600).ok());
       },
       StatusCode::kInvalidArgument, "not an unencrypted PEM private key"},
      {"another CA",
       [&](auto* p) {
         p->ca = Path("ca2/ca.crt");
         EXPECT_TRUE(
             CertificateAuthority::CreateIn(files_, Path("ca2"), "prod", now_)
                 .ok());
       },
       StatusCode::kInvalidArgument, "was not issued by the CA"},
      {"the CA's own certificate",
       [&](auto* p) {
         p->certificate = Path("ca/ca.crt");
         p->key = Path("ca/ca.key");
       },
       StatusCode::kInvalidArgument, "not a lockstep identity"},
  };
  for (const auto& c : cases) {
    CredentialPaths paths = IssueWorker(fmt::format("x{}", &c - cases));
    c.damage(&paths);
    const Status s = LoadCredentials(files_, paths, now_).status();
    EXPECT_EQ(s.code(), c.code) << c.name << ": " << Message(s);
    EXPECT_THAT(Message(s), HasSubstr(c.text)) << c.name;
  }
}

TEST_F(PkiTest, DatesAreNamed) {
  const CredentialPaths paths = IssueWorker("a");
  const Status late =
      LoadCredentials(files_, paths, now_ + kLeafLifetime + 1h).status();
  EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(late),
              HasSubstr("expired on " +
                        FormatWallTime(now_ + kLeafLifetime).substr(0, 10)));
  EXPECT_THAT(
      Message(late),
      HasSubstr("clock says " + FormatWallTime(now_ + kLeafLifetime + 1h)));
  EXPECT_THAT(Message(late), HasSubstr("set the clock if it is wrong"));
  const Status early = LoadCredentials(files_, paths, now_ - 48h).status();
  EXPECT_EQ(early.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(early), HasSubstr("set the clock"));
  const Status ca =
      CertificateAuthority::Load(files_, Path("ca"), now_ + kCaLifetime + 1h)
          .status();
  EXPECT_EQ(ca.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(ca), HasSubstr("the CA expired on 20"));
  EXPECT_THAT(Message(ca), HasSubstr("this machine's clock says 20"));
}

TEST_F(PkiTest, DatesOfTheCaAreNotTakenForAnotherCa) {
  const auto young = CertificateAuthority::Create("prod", now_ + 48h);
  ASSERT_TRUE(young.ok());
  LeafRequest request;
  request.identity = WorkerIdentity("prod", "a");
  const auto leaf = young->Issue(request, now_);
  ASSERT_TRUE(leaf.ok()) << leaf.status();
  CredentialPaths paths = IssueWorker("young");
  ASSERT_TRUE(files_->WriteAtomic(paths.ca, young->certificate()).ok());
  ASSERT_TRUE(files_->WriteAtomic(paths.certificate, leaf->certificate).ok());
  ASSERT_TRUE(files_->WriteAtomic(paths.key, leaf->key, 0600).ok());
  const Status status = LoadCredentials(files_, paths, now_).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("the CA in " + paths.ca + " that issued " +
                        paths.certificate + " is valid from "));
}

TEST_F(PkiTest, DatesOfACertificateThatWasLoadedLongAgo) {
  const auto loaded = LoadCredentials(files_, IssueWorker("a"), now_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto check = [&](WallTime now) {
    return Message(
        CheckCertificateDates(loaded->certificate, "it", "make another", now));
  };
  EXPECT_EQ(check(now_), "");
  EXPECT_THAT(check(now_ + kLeafLifetime + 1h), HasSubstr("it expired on 20"));
  EXPECT_THAT(check(now_ + kLeafLifetime + 1h), HasSubstr(": make another"));
  EXPECT_THAT(check(now_ - 48h), HasSubstr("it is valid from 20"));
  EXPECT_TRUE(CheckCertificateDates("no PEM", "it", "", now_).ok());
}

TEST_F(PkiTest, OfAServerThatIsNotThereNothingIsSaid) {
  EXPECT_TRUE(CheckServerDates("127.0.0.1:1", now_, 1s).ok());
  EXPECT_TRUE(CheckServerDates("no address", now_, 1s).ok());
}

// A record of TLS that comes byte by byte, each soon after the one before.
TEST_F(PkiTest, AServerThatDripsBytesIsLeftInTime) {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size),
            0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size),
      0);
  std::atomic<bool> stop = false;
  std::thread server([&] {
    const Fd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const unsigned char header[] = {22, 3, 3, 64, 0};
    bool open = send(client.get(), header, sizeof(header), MSG_NOSIGNAL) > 0;
    for (int i = 0; open && !stop && i < 2000; ++i) {
      open = send(client.get(), "x", 1, MSG_NOSIGNAL) > 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const MonoTime begun = MonotonicNow();
  EXPECT_TRUE(
      CheckServerDates("127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                       now_, std::chrono::milliseconds(200))
          .ok());
  EXPECT_LT(MonotonicNow() - begun, 10s);
  stop = true;
  server.join();
}

TEST_F(PkiTest, ACaThatIsNotThereIsSaidSo) {
  const Status s =
      CertificateAuthority::Load(files_, Path("none"), now_).status();
  EXPECT_EQ(s.code(), StatusCode::kNotFound) << Message(s);
}

}  // namespace
}  // namespace lockstep::pki
