#include "worker/package/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/base/file.h"
#include "common/base/random.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::package {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class UnpackTest : public testing::Test {
 protected:
  void SetUp() override {
    top_ = dir_ / "top";
    ASSERT_TRUE(RealFileSystem()->MakeDirs(top_).ok());
  }
  Status Unpack(const std::string& bytes) {
    const auto source = MakeByteSource(bytes);
    return UnpackTar(source.get(), top_, options_, &cancel_);
  }
  // The sentence of a refusal; nothing may be outside the folder.
  std::string Refused(const TarWriter& tar) {
    const Status status = Unpack(tar.Done());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(RealFileSystem()->List(dir_.path())->size(), 1u);
    return Message(status);
  }
  std::string Read(const std::string& name) {
    return RealFileSystem()->Read(JoinPath(top_, name)).value_or("absent");
  }
  mode_t ModeOf(const std::string& name) {
    struct stat info {};
    EXPECT_EQ(lstat(JoinPath(top_, name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }

  TempDir dir_;
  std::string top_;
  UnpackOptions options_;
  Cancellation cancel_;
};

TEST_F(UnpackTest, FilesFoldersAndLinksComeOutWithPlainModes) {
  const std::string deep = std::string(120, 'd') + "/file";
  TarWriter tar;
  tar.Folder("./").Folder("trainer/").File("trainer/task.py", "print(1)\n");
  tar.File("trainer/run.sh", "#!/bin/sh\n", 06755);
  tar.File("trainer/secret", "x", 0);
  tar.File("made/by/itself.txt", std::string(5000, 'y'));
  tar.Link("trainer/link.py", "task.py").Link("up", "made/by");
  tar.Link("made/by/back", "../../trainer/task.py");
  tar.HardLink("same.py", "trainer/task.py");
  tar.File(deep, "deep");
  tar.Pax("path", "pax-\xc3\xa4.txt").File("ignored", "umlaut");
  ASSERT_EQ(Unpack(tar.Done()), OkStatus());
  EXPECT_EQ(Read("trainer/task.py"), "print(1)\n");
  EXPECT_EQ(Read("trainer/link.py"), "print(1)\n");
  EXPECT_EQ(Read("made/by/back"), "print(1)\n");
  EXPECT_EQ(Read("same.py"), "print(1)\n");
  EXPECT_EQ(Read("up/itself.txt"), std::string(5000, 'y'));
  EXPECT_EQ(Read(deep), "deep");
  EXPECT_EQ(Read("pax-\xc3\xa4.txt"), "umlaut");
  EXPECT_EQ(Read("ignored"), "absent");
  EXPECT_EQ(ModeOf("trainer"), 0755u);
  EXPECT_EQ(ModeOf("made/by"), 0755u);
  EXPECT_EQ(ModeOf("trainer/run.sh"), 0755u);
  EXPECT_EQ(ModeOf("trainer/secret"), 0644u);
}

TEST_F(UnpackTest, EvilNamesAreRefusedByName) {
  EXPECT_EQ(Refused(TarWriter().File("/etc/passwd", "x")),
            "rejected entry \"/etc/passwd\": its name is absolute");
  EXPECT_EQ(Refused(TarWriter().File("a/../../evil", "x")),
            "rejected entry \"a/../../evil\": its name holds \"..\"");
  EXPECT_THAT(Refused(TarWriter().Folder("../evil/")), HasSubstr("\"..\""));
  EXPECT_THAT(Refused(TarWriter().Pax("path", "../evil").File("good", "x")),
              StartsWith("rejected entry \"../evil\""));
  EXPECT_THAT(Refused(TarWriter().File("a\nb", "x")),
              StartsWith("rejected entry \"a\\x0ab\": its name holds a "
                         "control character"));
  EXPECT_THAT(Refused(TarWriter().File(".", "x")), HasSubstr("folder itself"));
  EXPECT_THAT(Refused(TarWriter().File(std::string(300, 'n'), "x")),
              HasSubstr("a part of its name has 300 bytes"));
  std::string deep = "f";
  for (int i = 0; i < 70; ++i) deep = "d/" + deep;
  EXPECT_THAT(Refused(TarWriter().File(deep, "x")), HasSubstr("folders deep"));
}

TEST_F(UnpackTest, LinksThatLeaveTheFolderAreRefusedByName) {
  EXPECT_EQ(Refused(TarWriter().Link("l", "/etc")),
            "rejected entry \"l\": it is a link to \"/etc\", which is "
            "outside the folder");
  EXPECT_THAT(Refused(TarWriter().Link("l2", "..")), HasSubstr("outside"));
  EXPECT_THAT(Refused(TarWriter().Link("d/l", "../../x")),
              HasSubstr("outside"));
  EXPECT_THAT(Refused(TarWriter().Link("l3", "")), HasSubstr("outside"));
  // By its text it stays inside: by way of another link it would not.
  EXPECT_THAT(
      Refused(
          TarWriter().Link("p/q/up", "../..").Link("out", "p/q/up/../evil")),
      HasSubstr("\"..\" after a name"));
  EXPECT_THAT(Refused(TarWriter().HardLink("h", "/etc/passwd")),
              HasSubstr("which is outside the folder"));
  EXPECT_THAT(Refused(TarWriter().HardLink("h", "../x")), HasSubstr("outside"));
  EXPECT_THAT(Refused(TarWriter().HardLink("h", "absent")),
              HasSubstr("not a file of an earlier entry"));
  EXPECT_THAT(Refused(TarWriter().Link("a/s", "../x").HardLink("s", "a/s")),
              HasSubstr("not a file of an earlier entry"));
}

TEST_F(UnpackTest, NothingIsWrittenThroughALinkOrTwice) {
  EXPECT_EQ(Refused(TarWriter().Folder("d").Link("l", "d").File("l/f", "x")),
            "rejected entry \"l/f\": its parent \"l\" is a link or a file, not "
            "a folder");
  EXPECT_THAT(Read("d/f"), "absent");
  EXPECT_THAT(Refused(TarWriter().File("f", "1").File("f", "2")),
              HasSubstr("an earlier entry has the same name"));
  EXPECT_EQ(Read("f"), "1");
  EXPECT_THAT(Refused(TarWriter().Link("s", "f").File("s", "2")),
              HasSubstr("an earlier entry has the same name"));
  EXPECT_THAT(Refused(TarWriter().File("f2", "1").Folder("f2")),
              HasSubstr("a link or a file, not a folder"));
  EXPECT_THAT(Refused(TarWriter().File("f3", "1").Link("f3", "f")),
              HasSubstr("an earlier entry has the same name"));
}

TEST_F(UnpackTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(Refused(TarWriter().Add('3', "null", "", "")),
            "rejected entry \"null\": it is a device");
  EXPECT_THAT(Refused(TarWriter().Add('4', "disk", "", "")),
              HasSubstr("it is a device"));
  EXPECT_THAT(Refused(TarWriter().Add('6', "pipe", "", "")),
              HasSubstr("it is a fifo"));
  EXPECT_THAT(Refused(TarWriter().Add('Z', "what", "", "")),
              HasSubstr("not a file, folder or link"));
}

TEST_F(UnpackTest, BombsAreRefused) {
  options_.max_bytes = 10'000;
  EXPECT_THAT(
      Refused(TarWriter()
                  .File("one", std::string(6000, 'x'))
                  .File("two", std::string(6000, 'x'))),
      HasSubstr("rejected entry \"two\": the files exceed 10000 bytes"));
  options_.max_entries = 3;
  EXPECT_THAT(
      Refused(TarWriter().Folder("a").Folder("b").Folder("c").Folder("d")),
      HasSubstr("more than 3 entries"));
  // A size that no file has, and headers without end.
  std::string huge = TarWriter().File("huge", "").Done();
  EXPECT_EQ(
      Unpack(TarWriter().Pax("size", "99999999999999999").File("a", "").Done())
          .code(),
      StatusCode::kInvalidArgument);
  TarWriter headers;
  for (int i = 0; i < 100; ++i) headers.Pax("path", "p");
  EXPECT_FALSE(Unpack(headers.File("f", "x").Done()).ok());
}

TEST_F(UnpackTest, FoldersThatNoEntryMakesCountToo) {
  options_.max_entries = 5;
  // Explicit ones count once.
  EXPECT_EQ(Unpack(TarWriter()
                       .Folder("a")
                       .Folder("a/b")
                       .File("a/b/f", "x")
                       .Folder("a/b")
                       .File("a/g", "x")
                       .Done()),
            OkStatus());
  EXPECT_EQ(Unpack(TarWriter().File("c/d/e/f/g", "x").Done()), OkStatus());
  EXPECT_EQ(Refused(TarWriter().File("h/i/j/k/l/m", "x")),
            "rejected entry \"h/i/j/k/l/m\": the archive has more than 5 "
            "entries");
  EXPECT_THAT(
      Refused(TarWriter().File("n/1", "").File("o/1", "").File("p/1", "")),
      HasSubstr("more than 5 entries"));
  EXPECT_THAT(Refused(TarWriter().Folder("q/r/s/t/u/v")),
              HasSubstr("more than 5 entries"));
  EXPECT_EQ(Read("h/i/j/k/l/m"), "absent");
}

// One that comes slowly, or holds much that is skipped.
class SlowSource final : public ByteSource {
 public:
  StatusOr<size_t> Read(char* buffer, size_t size) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Headers without end.
    const std::string one = TarWriter().Folder("d").Done().substr(0, 512);
    size = std::min(size, one.size());
    memcpy(buffer, one.data(), size);
    return size;
  }
};

TEST_F(UnpackTest, ItTakesNoLongerThanItMay) {
  options_.most = std::chrono::milliseconds(30);
  SlowSource endless;
  const Status status = UnpackTar(&endless, top_, options_, &cancel_);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(status), "unpacking took longer than 30 ms");
}

TEST_F(UnpackTest, DamageIsSaidAndNeverEndsAsAWhole) {
  const std::string whole =
      TarWriter().File("file", std::string(3000, 'x')).Done();
  for (size_t size = 0; size < whole.size() - 512; size += 100) {
    ASSERT_TRUE(RealFileSystem()->RemoveAll(top_).ok());
    ASSERT_TRUE(RealFileSystem()->MakeDirs(top_).ok());
    EXPECT_EQ(Unpack(whole.substr(0, size)).code(), StatusCode::kDataLoss)
        << size;
  }
  // Without the mark of its end, and nothing else missing.
  EXPECT_EQ(Unpack(TarWriter().Folder("d").Done().substr(0, 512)).code(),
            StatusCode::kDataLoss);
  EXPECT_THAT(Message(Unpack(std::string(2048, 'x'))),
              HasSubstr("byte 0 does not begin a tar header"));
}

TEST_F(UnpackTest, GzippedFilesAreCheckedToTheLastByte) {
  const std::string path = dir_ / "a.tar.gz";
  const std::string bytes =
      TarWriter().File("file", RandomBytes(100'000)).Gzipped();
  const auto unpack = [&](const std::string& contents) {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(top_).ok());
    EXPECT_TRUE(RealFileSystem()->MakeDirs(top_).ok());
    EXPECT_TRUE(RealFileSystem()->WriteAtomic(path, contents).ok());
    return UnpackFile(path, top_, options_, &cancel_);
  };
  EXPECT_EQ(unpack(bytes), OkStatus());
  EXPECT_EQ(Read("file").size(), 100'000u);
  EXPECT_EQ(unpack(bytes.substr(0, bytes.size() - 4)).code(),
            StatusCode::kDataLoss);
  std::string damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  EXPECT_EQ(unpack(damaged).code(), StatusCode::kDataLoss);
  damaged = bytes;
  damaged[bytes.size() - 6] ^= 1;  // The checksum alone.
  EXPECT_EQ(unpack(damaged).code(), StatusCode::kDataLoss);
  EXPECT_EQ(unpack("").code(), StatusCode::kDataLoss);
}

TEST_F(UnpackTest, FilesBelongToTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  options_.user = PackageUser{12345, 12346, {}};
  ASSERT_EQ(Unpack(TarWriter()
                       .File("d/f", "x", 0755)
                       .Link("d/l", "f")
                       .HardLink("h", "d/f")
                       .Done()),
            OkStatus());
  for (const char* name : {"d", "d/f", "d/l", "h"}) {
    struct stat info {};
    ASSERT_EQ(lstat(JoinPath(top_, name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_uid, 12345u) << name;
    EXPECT_EQ(info.st_gid, 12346u) << name;
  }
}

TEST_F(UnpackTest, ItStopsWhenTold) {
  cancel_.Cancel();
  EXPECT_EQ(Unpack(TarWriter().File("f", "x").Done()).code(),
            StatusCode::kCancelled);
  EXPECT_THAT(RealFileSystem()->List(top_).value(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::package
