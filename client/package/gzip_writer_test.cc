#include "client/package/gzip_writer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

namespace lockstep::cli {
namespace {

std::string Noise(size_t size) {
  std::mt19937_64 random(7);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::string SourceText(size_t size) {
  std::string out;
  for (int i = 0; out.size() < size; ++i) {
    out += "def step_" + std::to_string(i) + "(self):\n    return self.loss\n";
  }
  out.resize(size);
  return out;
}

// Given in steps of `step` bytes.
std::string Pack(const std::string& bytes, size_t step) {
  std::string out;
  GzipWriter gzip([&](std::string_view packed) {
    out += packed;
    return OkStatus();
  });
  for (size_t at = 0; at < bytes.size(); at += step) {
    EXPECT_TRUE(gzip.Write(std::string_view(bytes).substr(at, step)).ok());
  }
  EXPECT_TRUE(gzip.Close().ok());
  return out;
}

std::string Unpack(const std::string& packed) {
  z_stream z = {};
  EXPECT_EQ(inflateInit2(&z, 16 + MAX_WBITS), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  std::string out;
  std::string buffer(1 << 16, '\0');
  int code = Z_OK;
  while (code == Z_OK) {
    z.next_out = reinterpret_cast<Bytef*>(buffer.data());
    z.avail_out = static_cast<uInt>(buffer.size());
    code = inflate(&z, Z_NO_FLUSH);
    out.append(buffer, 0, buffer.size() - z.avail_out);
  }
  EXPECT_EQ(code, Z_STREAM_END);
  EXPECT_EQ(z.avail_in, 0u) << "one member, and nothing behind it";
  inflateEnd(&z);
  return out;
}

TEST(GzipWriterTest, GivesBackWhatWentIn) {
  const size_t piece = GzipWriter::kPiece;
  const std::string cases[] = {
      "", "x", SourceText(100), Noise(100), SourceText(piece), Noise(piece + 1),
      // The level changes at each piece, back and forth.
      SourceText(piece) + Noise(piece) + SourceText(piece) + Noise(2 * piece) +
          "end",
      Noise(piece / 2) + SourceText(2 * piece) + Noise(piece)};
  for (const std::string& bytes : cases) {
    EXPECT_EQ(Unpack(Pack(bytes, 1 << 18)), bytes) << bytes.size();
  }
}

TEST(GzipWriterTest, TheSameBytesHoweverTheyCome) {
  const std::string bytes =
      SourceText(GzipWriter::kPiece + 17) + Noise(GzipWriter::kPiece);
  const std::string packed = Pack(bytes, bytes.size());
  EXPECT_EQ(Pack(bytes, 777), packed);
  EXPECT_EQ(Pack(bytes, GzipWriter::kPiece), packed);
  // No time stamp and no name.
  EXPECT_EQ(packed.substr(0, 8), std::string("\x1f\x8b\x08\0\0\0\0\0", 8));
}

TEST(GzipWriterTest, StoresWhatDoesNotShrinkAndPacksTheRest) {
  const size_t size = 4 * GzipWriter::kPiece;
  EXPECT_LT(Pack(SourceText(size), 1 << 18).size(), size / 4);
  const size_t stored = Pack(Noise(size), 1 << 18).size();
  EXPECT_GE(stored, size);
  EXPECT_LT(stored, size + size / 1000);
}

TEST(GzipWriterTest, AnErrorOfTheOutputStays) {
  int calls = 0;
  GzipWriter gzip([&](std::string_view) {
    ++calls;
    return ResourceExhausted("the disk is full");
  });
  const std::string bytes = Noise(2 * GzipWriter::kPiece);
  EXPECT_EQ(gzip.Write(bytes).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(gzip.Write(bytes).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(gzip.Close().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lockstep::cli
