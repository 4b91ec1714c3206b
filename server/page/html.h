// Builds an HTML page from untrusted text.
#ifndef LOCKSTEP_SERVER_PAGE_HTML_H_
#define LOCKSTEP_SERVER_PAGE_HTML_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/server.h"

namespace lockstep::server {

// Escapes text for an element and a quoted attribute. Control characters become
// U+FFFD.
std::string EscapeHtml(std::string_view text);
// Escapes one segment of a path (RFC 3986: all but unreserved is %-encoded).
std::string EscapePath(std::string_view text);

// The style sheet's classes h0 to h9 are ever stronger colours.
inline constexpr int kHeatColours = 10;

// Returns the colour class of a job's or node's state. Pages always show the
// name, too.
std::string_view StateClass(std::string_view state);

class Html {
 public:
  // `markup` is trusted. Foreign text goes through Text and similar functions.
  Html& Raw(std::string_view markup);
  Html& Text(std::string_view text);
  // <tag>text</tag>, with a class unless it is empty.
  Html& Element(std::string_view tag, std::string_view text,
                std::string_view css_class = {});
  // A link to PREFIX/name.
  Html& Link(std::string_view prefix, std::string_view name);
  // <tr><th>...</th></tr>. The cells of following rows carry these names, for
  // narrow screens.
  Html& HeadRow(std::initializer_list<std::string_view> cells);
  // The names that the cells of following rows carry.
  Html& SetColumns(std::initializer_list<std::string_view> names);
  // <tr>. Cells and Raw("</tr>") follow.
  Html& BeginRow();
  // <td ...>. Content and Raw("</td>") follow.
  Html& BeginCell(std::string_view css_class = {});
  Html& Cell(std::string_view text, std::string_view css_class = {});
  // BeginRow, a Cell for each, </tr>.
  Html& Row(std::initializer_list<std::string_view> cells);
  // Adds a row to a list of facts, unless `text` is empty.
  Html& Fact(std::string_view name, std::string_view text);
  // Shows 0..1 as a bar and a number.
  Html& Bar(double part);
  const std::string& str() const { return out_; }

 private:
  std::string out_;
  std::vector<std::string> columns_;
  size_t column_ = 0;
};

// Whether the browser loads a page again every few seconds.
enum class Refresh { kOften, kNever };

// Returns the whole page with the style sheet, without script. `body` is
// markup.
http::HttpResponse HtmlPage(std::string_view title, std::string_view body,
                            int status = 200,
                            Refresh refresh = Refresh::kOften);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_HTML_H_
