#include "client/cli/top_keys.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr size_t kMaxFilter = 100;

bool IsEnter(char c) { return c == '\r' || c == '\n'; }
// As terminals send it.
bool IsBackspace(char c) { return c == '\x7f' || c == '\b'; }

void Show(TopScreen screen, TopView* view) {
  if (view->screen == screen) return;
  view->screen = screen;
  view->scroll = 0;
  view->sort = 0;
  view->reverse = false;
}

// A key while the filter is typed.
void Type(char c, TopView* view) {
  if (IsEnter(c)) {
    view->typing = false;
  } else if (IsBackspace(c)) {
    if (!view->filter.empty()) view->filter.pop_back();
  } else if (c == '\x15') {  // Ctrl-U
    view->filter.clear();
  } else if (c >= ' ' && view->filter.size() < kMaxFilter) {
    view->filter += c;
  }
}

// Moves the marked row, or the lines of a screen that has none.
void Move(int by, TopView* view) {
  (view->screen == TopScreen::kJobs ? view->selected : view->scroll) += by;
}

void PressChar(char c, TopView* view) {
  switch (c) {
    case 'j':
      return Show(TopScreen::kJobs, view);
    case 'n':
      return Show(TopScreen::kNodes, view);
    case '<':
      --view->sort;
      return;
    case '>':
    case 's':
      ++view->sort;
      return;
    case 'r':
      view->reverse = !view->reverse;
      return;
    case '/':
      view->typing = view->screen != TopScreen::kRanks;
      return;
    default:
      break;
  }
  if (IsEnter(c) && view->screen == TopScreen::kJobs &&
      !view->selected_job.empty()) {
    view->job = view->selected_job;
    view->screen = TopScreen::kRanks;
    view->scroll = 0;
  } else if ((IsEnter(c) || IsBackspace(c)) &&
             view->screen == TopScreen::kRanks) {
    // The jobs are as they were.
    view->screen = TopScreen::kJobs;
    view->scroll = 0;
  }
}

}  // namespace

bool PressTopKey(const KeyPress& press, int height, TopView* view) {
  const int page = std::max(1, height - 6);
  switch (press.key) {
    case Key::kUp:
      Move(-1, view);
      return true;
    case Key::kDown:
      Move(1, view);
      return true;
    case Key::kPageUp:
      Move(-page, view);
      return true;
    case Key::kPageDown:
      Move(page, view);
      return true;
    case Key::kHome:
      view->scroll = view->selected = 0;
      return true;
    case Key::kLeft:
      --view->sort;
      return true;
    case Key::kRight:
      ++view->sort;
      return true;
    case Key::kChar:
      break;
  }
  if (view->typing) {
    Type(press.character, view);
    return true;
  }
  if (press.character == 'q' || press.character == 'Q') return false;
  PressChar(press.character, view);
  return true;
}

}  // namespace lockstep::cli
