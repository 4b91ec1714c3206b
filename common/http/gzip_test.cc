#include "common/http/gzip.h"

#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>

#include <random>

namespace lockstep::http {
namespace {

TEST(HttpGzipTest, WhoAcceptsIt) {
  const struct {
    const char* header;
    bool accepts;
  } cases[] = {
      {"", false},
      {"gzip", true},
      {"GZIP", true},
      {"deflate, gzip;q=1.0, *;q=0.5", true},
      {"br , gzip ;q=0.1", true},
      {"gzip;q=0", false},
      {"gzip;q=0.000, *", false},
      {"gzip; q=0.", false},
      {"*", true},
      {"*;q=0", false},
      {"identity", false},
      {"x-gzippy", false},
      {",,;;,", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(AcceptsGzip(c.header), c.accepts) << c.header;
  }
}

// Empty: not a gzip stream of `size` bytes.
std::string Unpacked(std::string packed, size_t size) {
  std::string body(size, '\0');
  inflate_state state;
  isal_inflate_init(&state);
  state.crc_flag = ISAL_GZIP;
  state.next_in = reinterpret_cast<uint8_t*>(packed.data());
  state.avail_in = static_cast<uint32_t>(packed.size());
  state.next_out = reinterpret_cast<uint8_t*>(body.data());
  state.avail_out = static_cast<uint32_t>(body.size());
  const bool whole = isal_inflate(&state) == ISAL_DECOMP_OK &&
                     state.block_state == ISAL_BLOCK_FINISH &&
                     state.total_out == size;
  return whole ? body : "";
}

TEST(HttpGzipTest, WhatIsPackedUnpacksAndIsShorter) {
  for (const size_t lines : {100, 100000}) {
    std::string body;
    for (size_t i = 0; i < lines; ++i) {
      body += "a_metric{job=\"" + std::to_string(i) + "\"} 1\n";
    }
    const auto packed = Gzip(body);
    ASSERT_TRUE(packed) << lines;
    EXPECT_LT(packed->size(), body.size() / 3);
    EXPECT_EQ(Unpacked(*packed, body.size()), body);
  }
}

TEST(HttpGzipTest, WhatWouldNotBecomeShorterStaysAsItIs) {
  EXPECT_FALSE(Gzip(""));
  EXPECT_FALSE(Gzip("healthy\n"));
  std::mt19937 random(1);
  std::string noise(100000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  EXPECT_FALSE(Gzip(noise));
}

}  // namespace
}  // namespace lockstep::http
