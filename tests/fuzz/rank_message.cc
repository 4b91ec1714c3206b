// A rank's packets to its worker daemon: before and after its greeting, over
// the real socket.
#include <poll.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/server.h"

namespace lockstep::worker::rank_link {
namespace {

constexpr char kNonce[] = "0123456789abcdef";

class Handler final : public RankLinkHandler {
 public:
  void OnHello(const RankKey&) override { ++hellos; }
  void OnPut(const RankKey&, const std::string& name,
             const std::string& value) override {
    fuzz::Require(!name.empty() && name.size() <= kMaxRendezvousKey &&
                      value.size() <= kMaxRendezvousValue,
                  "a put is within its bounds");
  }
  void OnGet(const RankKey& key, const std::string& name) override {
    server->SendValue(key, name, "value");
  }
  RankLinkServer* server = nullptr;
  int hellos = 0;
};

struct Daemon {
  Daemon() {
    const std::string path =
        "/tmp/lockstep-fuzz-" + std::to_string(::getpid()) + ".sock";
    auto listening = RankLinkServer::Listen(path, &handler);
    fuzz::Require(listening.ok(), "a socket in /tmp can be made");
    server = *std::move(listening);
    handler.server = server.get();
    server->Expect(key, kNonce, ::getuid(), {});
  }
  Handler handler;
  const RankKey key{"mnist", 3, 0};
  std::unique_ptr<RankLinkServer> server;
};

void Serve(Daemon* daemon, bool greet, std::string_view packet) {
  const auto fd = ConnectPackets(daemon->server->path());
  fuzz::Require(fd.ok(), "the daemon listens");
  const int before = daemon->handler.hellos;
  if (greet) {
    v1::RankMessage hello;
    hello.mutable_hello()->set_job(daemon->key.job);
    hello.mutable_hello()->set_generation(daemon->key.generation);
    hello.mutable_hello()->set_rank(daemon->key.rank);
    hello.mutable_hello()->set_nonce(kNonce);
    SendPacket(fd->get(), hello.SerializeAsString());
  }
  SendPacket(fd->get(), packet);
  daemon->server->Dispatch();  // Accepts.
  daemon->server->Dispatch();  // Reads.
  fuzz::Require(daemon->handler.hellos >= before + (greet ? 1 : 0),
                "who greets well is let in");
}

}  // namespace
}  // namespace lockstep::worker::rank_link

LOCKSTEP_FUZZ_TARGET(rank_message)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::rank_link;
  // With the program, so that its socket goes when it does.
  static Daemon daemon;
  const std::string_view bytes = fuzz::View(data, size);
  Serve(&daemon, true, bytes);
  Serve(&daemon, false, bytes);
  daemon.server->Dispatch();  // Notices that both have left.
  v1::DaemonMessage message;
  (void)message.ParseFromArray(data, static_cast<int>(size));
  return 0;
}
