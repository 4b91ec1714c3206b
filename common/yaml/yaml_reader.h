// Reads YAML, and so JSON, with the position of every error: "job.yaml:7:3:
// trainingInput.workerCount: \"two\" is not a whole number". Pure.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, "a.yaml"));
//   return ReadFields(root, "Machine", {{"cpus", Into(&machine.cpus)}, ...});
//
// A field without a value ("args:") counts as absent. Every error is
// InvalidArgument.
#ifndef LOCKSTEP_COMMON_YAML_YAML_READER_H_
#define LOCKSTEP_COMMON_YAML_YAML_READER_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// One value of a document with its position.
class YamlValue {
 public:
  // `path` is empty for the document itself.
  YamlValue(YAML::Node node, std::string path, std::string source);

  const std::string& path() const { return path_; }
  bool IsNull() const { return node_.IsNull(); }
  bool IsScalar() const { return node_.IsScalar(); }

  // "SOURCE:LINE:COLUMN: PATH: sentence".
  Status Wrong(const std::string& sentence) const;

  StatusOr<std::string> Text() const;
  StatusOr<bool> Bool() const;
  // Within the range, which the error gives.
  StatusOr<int64_t> Whole(int64_t low, int64_t high) const;
  // Finite, not negative.
  StatusOr<double> Number() const;
  StatusOr<std::vector<YamlValue>> List() const;
  // Returns names with values in the order of the text; each name once. The
  // first of a pair is the name as a value, for errors about it.
  StatusOr<std::vector<std::pair<YamlValue, YamlValue>>> Map() const;

 private:
  YAML::Node node_;
  std::string path_;
  std::string source_;
};

// "SOURCE: has 2 documents or more; one document is wanted". May throw
// yaml-cpp's exceptions for invalid YAML.
Status CheckOneDocument(const std::string& text, const std::string& source);

// Loads the one document of `text`. Errors call it `source`.
StatusOr<YamlValue> LoadYaml(const std::string& text,
                             const std::string& source);

using FieldReader = std::function<Status(const YamlValue&)>;
struct YamlField {
  std::string name;
  FieldReader read;
};

// Passes each field of `map` to its reader. An unknown name is rejected with
// the nearest known one; `hint`, if given, may add to the error ("is a field of
// trainingInput"; "" for nothing). `what` describes the map.
Status ReadFields(
    const YamlValue& map, const std::string& what,
    const std::vector<YamlField>& fields,
    const std::function<std::string(const std::string&)>& hint = nullptr);

// "; did you mean A?", or "; there are A, B, C".
std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& known);

// Readers that store the value in *out.
FieldReader Into(std::string* out);
FieldReader Into(std::optional<bool>* out);
FieldReader Into(std::optional<int64_t>* out);
FieldReader Into(std::optional<double>* out);
FieldReader Into(std::vector<std::string>* out);
FieldReader Into(std::map<std::string, std::string>* out);

// Reads each value of a map by `read`, over the value of the same name in *out.
template <typename T>
FieldReader IntoNamed(std::map<std::string, T>* out,
                      Status (*read)(const YamlValue&, T*)) {
  return [out, read](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto entries, value.Map());
    for (const auto& [key, entry] : entries) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, key.Text());
      LOCKSTEP_RETURN_IF_ERROR(read(entry, &(*out)[name]));
    }
    return OkStatus();
  };
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_YAML_YAML_READER_H_
