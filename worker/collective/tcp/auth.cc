#include "worker/collective/tcp/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "common/base/random.h"

namespace lockstep::tcp {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'T', 'C', 'P', 'H', 'I', '2'};

// `who` proves it: 'A' the acceptor, 'C' the connector.
void Sign(const Secret& secret, char who, const Hello& hello,
          const uint8_t* nonce, uint8_t* proof) {
  std::string text = "lockstep tcp ";
  text += who;
  text += secret.session;
  text.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
  text.append(reinterpret_cast<const char*>(nonce), kNonceBytes);
  unsigned int size = kProofBytes;
  HMAC(EVP_sha256(), secret.key.data(), static_cast<int>(secret.key.size()),
       reinterpret_cast<const uint8_t*>(text.data()), text.size(), proof,
       &size);
}

bool Check(const Secret& secret, char who, const Hello& hello,
           const uint8_t* nonce, const uint8_t* proof) {
  uint8_t expected[kProofBytes];
  Sign(secret, who, hello, nonce, expected);
  return CRYPTO_memcmp(expected, proof, kProofBytes) == 0;
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
  Sign(secret, 'A', hello, challenge.nonce, challenge.proof);
  return challenge;
}

bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge) {
  return Check(secret, 'A', hello, challenge.nonce, challenge.proof);
}

Proof Answer(const Secret& secret, const Hello& hello,
             const Challenge& challenge) {
  Proof proof;
  Sign(secret, 'C', hello, challenge.nonce, proof.proof);
  return proof;
}

bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge, const Proof& proof) {
  return Check(secret, 'C', hello, challenge.nonce, proof.proof);
}

}  // namespace lockstep::tcp
