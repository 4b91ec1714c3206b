// A page of HTML, built from text that anybody may have written.
#ifndef LOCKSTEP_SERVER_PAGE_HTML_H_
#define LOCKSTEP_SERVER_PAGE_HTML_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/server.h"

namespace lockstep {

// Fit for an element's text and for a quoted attribute. Control characters
// become U+FFFD.
std::string EscapeHtml(std::string_view text);
// Fit for one segment of a path (RFC 3986: all but unreserved is %-encoded).
std::string EscapePath(std::string_view text);

// How the name of a job's or node's state is coloured; the name itself is
// always there, too.
std::string_view StateClass(std::string_view state);

class Html {
 public:
  // `markup` is ours; text of others goes through Text and the like.
  Html& Raw(std::string_view markup);
  Html& Text(std::string_view text);
  // <tag>text</tag>, with class where it is not empty.
  Html& Element(std::string_view tag, std::string_view text,
                std::string_view css_class = {});
  // A link to PREFIX/name.
  Html& Link(std::string_view prefix, std::string_view name);
  // <tr><th>...</th></tr>. The cells of the rows that follow carry these
  // names, for where there is no room for a table.
  Html& HeadRow(std::initializer_list<std::string_view> cells);
  // <tr>; then cells; then Raw("</tr>").
  Html& BeginRow();
  // <td ...>; then content; then Raw("</td>").
  Html& BeginCell(std::string_view css_class = {});
  Html& Cell(std::string_view text, std::string_view css_class = {});
  // BeginRow, a Cell for each, </tr>.
  Html& Row(std::initializer_list<std::string_view> cells);
  // A row of a list of facts; nothing where `text` is empty.
  Html& Fact(std::string_view name, std::string_view text);
  // 0..1, drawn and said.
  Html& Bar(double part);
  const std::string& str() const { return out_; }

 private:
  std::string out_;
  std::vector<std::string> columns_;
  size_t column_ = 0;
};

// The whole page: our style, no script, read again each few seconds. `body` is
// markup.
HttpResponse HtmlPage(std::string_view title, std::string_view body,
                      int status = 200);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_PAGE_HTML_H_
