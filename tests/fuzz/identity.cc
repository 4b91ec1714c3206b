// Names in certificates.
#include "common/pki/identity.h"

#include "common/pki/authorisation.h"
#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(identity)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace pki;
  const std::string_view uri = fuzz::View(data, size);
  const auto identity = ParseIdentity(uri);
  if (!identity.ok()) return 0;
  fuzz::Require(CheckIdentity(*identity).ok(), "a name that was read is one");
  fuzz::Require(identity->kind != Identity::Kind::kInsecure,
                "no certificate is nobody's");
  fuzz::Require(FormatIdentity(*identity) == uri, "it has one form");
  static const auto* const table =
      new StatusOr<AuthorisationTable>(AuthorisationTable::Create());
  const bool admin = identity->kind == Identity::Kind::kUser &&
                     identity->role == UserRole::kAdmin;
  fuzz::Require(
      admin || !(*table)
                    ->Authorise(*identity, identity->cluster,
                                "/lockstep.v1.ClusterService/ForgetNode")
                    .ok(),
      "only an admin forgets nodes");
  return 0;
}
