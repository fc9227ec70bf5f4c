#include "ffi/shared/board.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

namespace pccl {
namespace {

size_t HeaderBytes() {
  constexpr size_t kPage = 4096;
  return (sizeof(SegmentHeader) + kPage - 1) / kPage * kPage;
}

void Write(char (&to)[kDescription], const std::string& text) {
  const size_t n = std::min(text.size(), kDescription - 1);
  memcpy(to, text.data(), n);
  to[n] = '\0';
}

std::string Read(const char (&from)[kDescription]) {
  char text[kDescription];
  memcpy(text, from, kDescription);
  return std::string(text, strnlen(text, kDescription - 1));
}

// What /proc says of a process: its state ('?' where it does not say, 'X' where there is none) and
// when it was started.
struct ProcessStatus {
  char state = '?';
  uint64_t start_time = 0;
};

ProcessStatus StatusOf(int64_t pid) {
  ProcessStatus status;
  char path[64], line[1024] = {};
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) {
    if (errno == ENOENT || errno == ESRCH) status.state = 'X';
    return status;
  }
  const size_t n = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  // The name, in parentheses, may hold anything; field 3 follows it, field 22 is the start.
  const char* field = n > 0 ? strrchr(line, ')') : nullptr;
  if (field == nullptr || field[1] == '\0') return status;
  status.state = field[2];
  for (int i = 2; i < 22 && field != nullptr; ++i) field = strchr(field + 1, ' ');
  if (field != nullptr) status.start_time = strtoull(field, nullptr, 10);
  return status;
}

bool IsFree(Board& board) {
  if (board.key.load(std::memory_order_relaxed) == 0) return true;
  if (board.readers_left.load(std::memory_order_acquire) > 0) return false;
  board.key.store(0, std::memory_order_release);
  return true;
}

}  // namespace

size_t SlotBytes(size_t nbytes) {
  constexpr size_t kPage = 4096;
  const size_t slot = nbytes / (kBoards * kSlots) / kPage * kPage;
  return slot < kPage ? kPage : slot;
}

size_t SegmentBytes(size_t slot_bytes) { return HeaderBytes() + kBoards * kSlots * slot_bytes; }

void FormatSegment(char* segment, size_t slot_bytes) {
  auto* header = new (segment) SegmentHeader();
  header->pid = getpid();
  header->start_time = StatusOf(header->pid).start_time;
  header->slot_bytes = slot_bytes;
  for (Board& board : header->boards) board.key.store(0, std::memory_order_relaxed);
}

char* BoardRef::slot(int64_t piece) const {
  const size_t slot = index_ * kSlots + static_cast<size_t>(piece) % kSlots;
  return segment_ + HeaderBytes() + slot * slot_bytes();
}

std::string BoardRef::Text() const { return Read((*this)->description); }

BoardRef PublishBoard(char* own_segment, uint64_t key, uint64_t signature,
                      const std::string& description, int32_t readers) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto* header = reinterpret_cast<SegmentHeader*>(own_segment);
  for (size_t i = 0; i < kBoards; ++i) {
    Board& board = header->boards[i];
    if (!IsFree(board)) continue;
    board.signature = signature;
    Write(board.description, description);
    board.filled.store(0, std::memory_order_relaxed);
    board.reduced.store(0, std::memory_order_relaxed);
    board.copied.store(0, std::memory_order_relaxed);
    board.outcome.store(kOpen, std::memory_order_relaxed);
    board.readers_left.store(readers, std::memory_order_relaxed);
    board.key.store(key, std::memory_order_release);
    return BoardRef(own_segment, i);
  }
  return {};
}

BoardRef FindBoard(char* segment, uint64_t key) {
  auto* header = reinterpret_cast<SegmentHeader*>(segment);
  for (size_t i = 0; i < kBoards; ++i) {
    if (header->boards[i].key.load(std::memory_order_acquire) == key) return BoardRef(segment, i);
  }
  return {};
}

void FailBoard(const BoardRef& own, const std::string& error) {
  Write(own->description, error);
  own->outcome.store(kFailed, std::memory_order_release);
}

std::string PublishedTexts(char* segment) {
  auto* header = reinterpret_cast<SegmentHeader*>(segment);
  std::string texts;
  for (size_t i = 0; i < kBoards; ++i) {
    const BoardRef board(segment, i);
    const bool waiting = header->boards[i].key.load(std::memory_order_acquire) != 0 &&
                         board->outcome.load(std::memory_order_acquire) == kOpen;
    if (waiting) {
      texts += (texts.empty() ? "" : "; ") + board.Text();
    }
  }
  return texts;
}

std::string Disagreement(int64_t process, const std::string& description, int64_t other,
                         const std::string& other_description) {
  const std::string both = "processes disagree: process " + std::to_string(process) + " is in " +
                           description + ", process " + std::to_string(other) + " in ";
  if (description == other_description) {
    return both +
           "the same, but over other devices or in another order of them. All processes "
           "must build the same mesh.";
  }
  return both + other_description + ". All processes must run the same program on the same shapes.";
}

void SayFarewell(char* own_segment, const std::string& reason) {
  auto* header = reinterpret_cast<SegmentHeader*>(own_segment);
  Write(header->farewell, reason);
  header->leaving.store(true, std::memory_order_release);
}

Health HealthOf(char* segment, bool watched) {
  const auto* header = reinterpret_cast<SegmentHeader*>(segment);
  if (header->leaving.load(std::memory_order_acquire)) {
    return {true, "has left the program: " + Read(header->farewell)};
  }
  if (!watched) return {};
  const ProcessStatus status = StatusOf(header->pid);
  if (status.state == '?') return {};
  const bool same = status.start_time == header->start_time;
  if (!same || status.state == 'Z' || status.state == 'X') return {true, "has ended"};
  return {false, status.state == 'T' || status.state == 't' ? "is stopped" : ""};
}

bool Visible(char* segment) {
  const auto* header = reinterpret_cast<SegmentHeader*>(segment);
  return header->start_time != 0 && StatusOf(header->pid).start_time == header->start_time;
}

}  // namespace pccl
