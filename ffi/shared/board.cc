#include "ffi/shared/board.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>

namespace pccl {
namespace {

size_t HeaderBytes() {
  constexpr size_t kPage = 4096;
  return (sizeof(SegmentHeader) + kPage - 1) / kPage * kPage;
}

void Describe(Board& board, const std::string& text) {
  const size_t n = std::min(text.size(), kDescription - 1);
  memcpy(board.description, text.data(), n);
  board.description[n] = '\0';
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
  header->slot_bytes = slot_bytes;
  for (Board& board : header->boards) board.key.store(0, std::memory_order_relaxed);
}

char* BoardRef::slot(int64_t piece) const {
  const size_t slot = index_ * kSlots + static_cast<size_t>(piece) % kSlots;
  return segment_ + HeaderBytes() + slot * slot_bytes();
}

std::string BoardRef::Text() const {
  char text[kDescription];
  memcpy(text, (*this)->description, kDescription);
  return std::string(text, strnlen(text, kDescription - 1));
}

BoardRef PublishBoard(char* own_segment, uint64_t key, uint64_t signature,
                      const std::string& description, int32_t readers) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto* header = reinterpret_cast<SegmentHeader*>(own_segment);
  for (size_t i = 0; i < kBoards; ++i) {
    Board& board = header->boards[i];
    if (!IsFree(board)) continue;
    board.signature = signature;
    Describe(board, description);
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
  Describe(*own.operator->(), error);
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

std::string ProcessTrouble(int64_t pid) {
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return "has ended";
  char path[64], line[512] = {};
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return "";
  const size_t n = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  const char* name_end = n > 0 ? strrchr(line, ')') : nullptr;
  const char state = name_end != nullptr && name_end[1] != '\0' ? name_end[2] : '?';
  if (state == 'Z' || state == 'X') return "has ended";
  return state == 'T' || state == 't' ? "is stopped" : "";
}

}  // namespace pccl
