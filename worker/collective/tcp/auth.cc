#include "worker/collective/tcp/auth.h"

#include <cstring>

#include "common/base/random.h"

namespace lockstep::worker::collective::tcp {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'T', 'C', 'P', 'H', 'I', '3'};

// `who` proves it: 'A' the acceptor, 'C' the connector.
Sha256Mac Sign(const Secret& secret, char who, const Hello& hello,
               const uint8_t* nonce) {
  std::string text = "lockstep tcp ";
  text += who;
  text += secret.session;
  text.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
  text.append(reinterpret_cast<const char*>(nonce), kNonceBytes);
  return HmacSha256(secret.key, text);
}

}  // namespace

Hello MakeHello(int from, int to, int stream) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof(kMagic));
  hello.from = static_cast<uint32_t>(from);
  hello.to = static_cast<uint32_t>(to);
  hello.stream = static_cast<uint32_t>(stream);
  std::memcpy(hello.nonce, RandomBytes(kNonceBytes).data(), kNonceBytes);
  return hello;
}

bool IsHello(const Hello& hello) {
  return std::memcmp(hello.magic, kMagic, sizeof(kMagic)) == 0;
}

Challenge Answer(const Secret& secret, const Hello& hello) {
  Challenge challenge;
  std::memcpy(challenge.nonce, RandomBytes(kNonceBytes).data(), kNonceBytes);
  challenge.proof = Sign(secret, 'A', hello, challenge.nonce);
  return challenge;
}

bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge) {
  return EqualMacs(Sign(secret, 'A', hello, challenge.nonce), challenge.proof);
}

Proof Answer(const Secret& secret, const Hello& hello,
             const Challenge& challenge) {
  return {Sign(secret, 'C', hello, challenge.nonce)};
}

bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge, const Proof& proof) {
  return EqualMacs(Sign(secret, 'C', hello, challenge.nonce), proof.proof);
}

}  // namespace lockstep::worker::collective::tcp
