#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "worker/checkpoint/checkpoint_test_util.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::HasSubstr;

StatusOr<Safetensors> Parse(std::string_view text) {
  auto bytes = std::make_unique<char[]>(text.size());
  std::memcpy(bytes.get(), text.data(), text.size());
  return Safetensors::Parse(std::move(bytes), text.size());
}

// A file with this header and `data` after it.
std::string File(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + header + data;
}

TEST(SafetensorsTest, EveryTypeRoundTripsAligned) {
  const std::string bytes = "0123456789abcdef0123456789abcdef";
  std::vector<TensorView> tensors;
  for (DType dtype : {DType::kBool, DType::kF32, DType::kU8, DType::kF64,
                      DType::kF16, DType::kBf16, DType::kI32, DType::kI64}) {
    tensors.push_back({std::string(DTypeName(dtype)),
                       dtype,
                       {1, 3},
                       bytes.data(),
                       3 * DTypeSize(dtype)});
  }
  tensors.push_back({"scalar", DType::kF64, {}, bytes.data(), 8});
  tensors.push_back({"empty", DType::kF32, {4, 0}, nullptr, 0});
  MemoryFileSystem fs;
  ASSERT_TRUE(
      SaveSafetensors(&fs, "/model.safetensors", tensors, {{"who", "\"me\""}})
          .ok());
  const auto file = Safetensors::Load(&fs, "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), tensors.size());
  EXPECT_EQ(file->metadata(), (Metadata{{"who", "\"me\""}}));
  for (const TensorView& want : tensors) {
    const TensorView* got = file->Find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->dtype, want.dtype);
    EXPECT_EQ(got->shape, want.shape);
    EXPECT_EQ(got->contents(), want.contents());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->data) % DTypeSize(got->dtype),
              0u);
  }
  EXPECT_EQ(fs.List("/")->size(), 1u) << "no temporary is left";
}

// Byte for byte what the format's description asks for.
TEST(SafetensorsTest, WritesTheDocumentedBytes) {
  const float value = 1.0f;
  const std::vector<TensorView> tensors = {{"w", DType::kF32, {1}, &value, 4}};
  MemoryFileSystem fs;
  ASSERT_TRUE(SaveSafetensors(&fs, "/m", tensors, {{"a", "b"}}).ok());
  std::string header =
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[1],)"
      R"("data_offsets":[0,4]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(fs.Read("/m", 1000).value(),
            File(header, std::string("\x00\x00\x80\x3f", 4)));
}

TEST(SafetensorsTest, RefusesWhatItCannotWrite) {
  const float value = 1.0f;
  MemoryFileSystem fs;
  const auto save = [&fs](std::vector<TensorView> tensors,
                          Metadata metadata = {}) {
    const Status status = SaveSafetensors(&fs, "/m", tensors, metadata);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(fs.List("/")->empty()) << "nothing is left";
    return Message(status);
  };
  const TensorView good{"w", DType::kF32, {1}, &value, 4};
  EXPECT_THAT(save({good, good}), HasSubstr("two tensors have the name w"));
  TensorView bad = good;
  bad.shape = {2};
  EXPECT_THAT(save({bad}), HasSubstr("has 4 bytes, but its shape needs 8"));
  bad.shape = {-1};
  EXPECT_THAT(save({bad}), HasSubstr("negative"));
  bad.shape = {INT64_MAX, INT64_MAX};
  EXPECT_THAT(save({bad}), HasSubstr("larger than"));
  bad = good;
  bad.name = "";
  EXPECT_FALSE(save({bad}).empty());
  bad.name = "a\nb";
  EXPECT_FALSE(save({bad}).empty());
  bad.name = "__metadata__";
  EXPECT_FALSE(save({bad}).empty());
  EXPECT_THAT(save({good}, {{"k", "\xff"}}), HasSubstr("UTF-8"));
}

TEST(SafetensorsTest, BadFilesAreRefused) {
  const std::string data(8, 'x');
  const auto tensor = [](const std::string& name, int begin, int end) {
    return fmt::format(
        R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", name,
        (end - begin) / 4, begin, end);
  };
  EXPECT_TRUE(
      Parse(File("{" + tensor("a", 0, 4) + "," + tensor("b", 4, 8) + "}", data))
          .ok());
  const std::vector<std::string> bad = {
      "",
      "1234567",
      std::string(8, '\xff'),
      File("", data),
      File("[]", ""),
      File("{", ""),
      // A gap, an overlap, past the end, too little.
      File("{" + tensor("a", 4, 8) + "}", data),
      File("{" + tensor("a", 0, 8) + "," + tensor("b", 4, 8) + "}", data),
      File("{" + tensor("a", 0, 12) + "}", data),
      File("{" + tensor("a", 0, 4) + "}", data),
      // One name twice.
      File("{" + tensor("a", 0, 4) + "," + tensor("a", 4, 8) + "}", data),
      File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", data),
      File(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", data),
      File(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", data),
      File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", data),
      File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", data),
      File(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", data),
      File(
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":{"y":1}}})",
          data),
      File(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", data),
      File(R"({"__metadata__":{"a":1}})", ""),
      File(R"({"__metadata__":[]})", ""),
      File(std::string(100'000, '['), ""),
  };
  for (const std::string& file : bad) {
    EXPECT_FALSE(Parse(file).ok()) << file.substr(0, 120);
  }
}

TEST(SafetensorsTest, RandomDamageNeverCrashes) {
  MemoryFileSystem fs;
  const TestState state(5, 20);
  ASSERT_TRUE(SaveSafetensors(&fs, "/m", state.Views(), {{"a", "b"}}).ok());
  const std::string good = fs.Read("/m", 1 << 20).value();
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int n = 0; n < 3; ++n) {
      bad[random() % 200] = static_cast<char>(random());
    }
    if (const auto parsed = Parse(bad); parsed.ok()) {
      uint64_t total = 0;
      for (const TensorView& tensor : parsed->tensors()) {
        total += tensor.bytes;
        StateHash(std::vector{tensor});  // Reads all of it.
      }
      EXPECT_LE(total, good.size());
    }
  }
}

TEST(SnapshotTest, CopiesAndKeepsItsMemory) {
  std::vector<float> values(100, 1.0f);
  const std::vector<TensorView> views = {
      {"a", DType::kF32, {100}, values.data(), 400},
      {"b", DType::kU8, {3}, values.data(), 3}};
  Snapshot snapshot;
  ASSERT_TRUE(snapshot.Copy(views).ok());
  snapshot.AddBlob("rng", "xyz");
  EXPECT_EQ(snapshot.bytes(), 406u);
  const void* memory = snapshot.tensors()[0].data;
  values[99] = 2.0f;
  float last = 0;
  std::memcpy(&last, static_cast<const char*>(memory) + 396, 4);
  EXPECT_EQ(last, 1.0f);
  Snapshot moved = std::move(snapshot);
  ASSERT_TRUE(moved.Copy(views).ok());
  EXPECT_EQ(moved.tensors()[0].data, memory);
  EXPECT_TRUE(moved.blobs().empty());
  // A moved-from snapshot has no memory and takes new.
  ASSERT_TRUE(snapshot.Copy(views).ok());
  EXPECT_NE(snapshot.tensors()[0].data, memory);
}

TEST(StateHashTest, SeesEveryBitNameShapeAndOrder) {
  std::vector<float> values(10, 1.0f);
  const TensorView a{"a", DType::kF32, {10}, values.data(), 40};
  TensorView b = a;
  b.name = "b";
  const uint64_t hash = StateHash(std::vector{a, b});
  EXPECT_EQ(StateHash(std::vector{a, b}), hash);
  EXPECT_NE(StateHash(std::vector{b, a}), hash);
  EXPECT_NE(StateHash(std::vector{a}), hash);
  b.shape = {5, 2};
  EXPECT_NE(StateHash(std::vector{a, b}), hash);
  b.shape = {10};
  b.dtype = DType::kI32;
  EXPECT_NE(StateHash(std::vector{a, b}), hash);
  b.dtype = DType::kF32;
  values[3] = -1.0f;
  EXPECT_NE(StateHash(std::vector{a, b}), hash);
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
