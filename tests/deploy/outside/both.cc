// Both libraries in one process, each with protobuf inside.
#include <lockstep/client.h>
#include <lockstep/runtime.h>

#include <cstdio>

int main() {
  auto session = lockstep::runtime::Session::Join({});
  auto client = lockstep::client::Client::Connect(
      {.address = "127.0.0.1:1",
       .insecure_loopback = true,
       .timeout = std::chrono::milliseconds(200)});
  if (!session.ok() || !client.ok() || !(*session)->local()) return 1;
  if ((*client)->Get("x").ok()) return 2;
  return (*session)->Leave(absl::OkStatus());
}
