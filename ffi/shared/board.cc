#include "ffi/shared/board.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <random>
#include <vector>

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

// Few sets rather than small slots: a piece should be worth the waiting that comes with it.
size_t Sets(size_t data_bytes) {
  constexpr size_t kWanted = size_t{512} << 10;
  return std::clamp(data_bytes / (kSlots * kWanted), size_t{1}, kMostSets);
}

size_t SlotBytes(size_t data_bytes) {
  constexpr size_t kPage = 4096;
  return std::max(kPage, data_bytes / (Sets(data_bytes) * kSlots) / kPage * kPage);
}

SegmentHeader* Header(char* segment) { return reinterpret_cast<SegmentHeader*>(segment); }

size_t PlaceOf(uint64_t key) { return static_cast<size_t>(key % kBoards); }

uint32_t Word(size_t set, Hold hold) {
  return static_cast<uint32_t>(set) << 2 | static_cast<uint32_t>(hold);
}

}  // namespace

// The boards and sets of a segment of this process's own that are in use.
class Ledger {
 public:
  Ledger() { owners_.fill(kBoards); }

  // The index of a free board for `key`, or kBoards. It counts as in use from here on.
  size_t TakeBoard(SegmentHeader* header, uint64_t key, int32_t readers) {
    std::lock_guard<std::mutex> lock(mutex_);
    Reclaim(header);
    for (size_t away = 0; away < kBoards && boards_.size() < kBoards; ++away) {
      const size_t index = (PlaceOf(key) + away) % kBoards;
      if (header->keys[index].load(std::memory_order_relaxed) != 0) continue;
      if (std::find(boards_.begin(), boards_.end(), index) != boards_.end()) continue;
      boards_.push_back(index);
      header->boards[index].readers_left.store(readers, std::memory_order_relaxed);
      if (away > header->reach.load(std::memory_order_relaxed)) {
        header->reach.store(away, std::memory_order_release);
      }
      return index;
    }
    return kBoards;
  }

  // Stores the number of a set, for board `index`, into its `hold`.
  bool TakeSet(SegmentHeader* header, size_t index, Hold hold, bool take_away) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t set = FreeSet(header);
    if (set == header->sets) {
      Reclaim(header);
      set = FreeSet(header);
    }
    for (size_t s = 0; set == header->sets && take_away && s < header->sets; ++s) {
      if (TakeAway(&header->boards[owners_[s]], s)) set = s;
    }
    if (set == header->sets) return false;
    owners_[set] = index;
    header->boards[index].hold.store(Word(set, hold), std::memory_order_release);
    return true;
  }

  void DropStaged(SegmentHeader* header, size_t index) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t set = 0; set < header->sets; ++set) {
      if (owners_[set] == index && TakeAway(&header->boards[index], set)) owners_[set] = kBoards;
    }
  }

 private:
  static bool TakeAway(Board* board, size_t set) {
    uint32_t staged = Word(set, Hold::kStaged);
    return board->hold.compare_exchange_strong(staged, Word(0, Hold::kNone),
                                               std::memory_order_acq_rel);
  }

  size_t FreeSet(const SegmentHeader* header) const {
    const auto end = owners_.begin() + static_cast<std::ptrdiff_t>(header->sets);
    return static_cast<size_t>(std::find(owners_.begin(), end, kBoards) - owners_.begin());
  }

  // Frees what nobody looks at any more.
  void Reclaim(SegmentHeader* header) {
    const auto over = [&](size_t index) {
      if (header->boards[index].readers_left.load(std::memory_order_acquire) > 0) return false;
      for (size_t& owner : owners_) owner = owner == index ? kBoards : owner;
      header->keys[index].store(0, std::memory_order_release);
      return true;
    };
    boards_.erase(std::remove_if(boards_.begin(), boards_.end(), over), boards_.end());
  }

  std::mutex mutex_;
  std::vector<size_t> boards_;            // in use
  std::array<size_t, kMostSets> owners_;  // by set: the board that has it, or kBoards
};

size_t SegmentBytes(size_t data_bytes) {
  return HeaderBytes() + Sets(data_bytes) * kSlots * SlotBytes(data_bytes);
}

void FormatSegment(char* segment, size_t data_bytes) {
  auto* header = new (segment) SegmentHeader();
  header->pid = getpid();
  header->start_time = StatusOf(header->pid).start_time;
  static std::random_device random;
  static const uint64_t secret = static_cast<uint64_t>(random()) << 32 | random();
  header->ledger = new Ledger;
  header->secret = secret;
  header->secret_address = reinterpret_cast<uint64_t>(&secret);
  header->sets = Sets(data_bytes);
  header->slot_bytes = SlotBytes(data_bytes);
}

char* BoardRef::slot(int64_t piece) const {
  const size_t set = (*this)->hold.load(std::memory_order_relaxed) >> 2;
  return segment_ + HeaderBytes() +
         (set * kSlots + static_cast<size_t>(piece) % kSlots) * slot_bytes();
}

bool BoardRef::Secure() const {
  std::atomic<uint32_t>& word = (*this)->hold;
  uint32_t seen = word.load(std::memory_order_acquire);
  while (static_cast<Hold>(seen & 3) == Hold::kStaged) {
    if (word.compare_exchange_weak(seen, Word(seen >> 2, Hold::kHeld), std::memory_order_acq_rel)) {
      return true;
    }
  }
  return static_cast<Hold>(seen & 3) == Hold::kHeld;
}

std::string BoardRef::Text() const { return Read((*this)->description); }

BoardRef PublishBoard(char* own_segment, uint64_t key, uint64_t signature,
                      const std::string& description, int32_t readers) {
  SegmentHeader* header = Header(own_segment);
  const size_t index = header->ledger->TakeBoard(header, key, readers);
  if (index == kBoards) return {};
  Board& board = header->boards[index];
  board.signature = signature;
  Write(board.description, description);
  board.filled.store(0, std::memory_order_relaxed);
  board.reduced.store(0, std::memory_order_relaxed);
  board.copied.store(0, std::memory_order_relaxed);
  board.hold.store(Word(0, Hold::kNone), std::memory_order_relaxed);
  board.outcome.store(kOpen, std::memory_order_relaxed);
  header->keys[index].store(key, std::memory_order_release);
  return BoardRef(own_segment, index);
}

bool TakeSet(const BoardRef& own, bool entitled) {
  const Hold hold = entitled ? Hold::kHeld : Hold::kFilling;
  return own.header()->ledger->TakeSet(own.header(), own.index(), hold, entitled);
}

void DropStaged(const BoardRef& own) {
  own.header()->ledger->DropStaged(own.header(), own.index());
}

void SayStaged(const BoardRef& own) {
  const uint32_t set = own->hold.load(std::memory_order_relaxed) >> 2;
  own->hold.store(Word(set, Hold::kStaged), std::memory_order_release);
}

BoardRef FindBoard(char* segment, uint64_t key) {
  SegmentHeader* header = Header(segment);
  const uint64_t reach = header->reach.load(std::memory_order_acquire);
  for (uint64_t away = 0; away <= reach; ++away) {
    const size_t index = (PlaceOf(key) + away) % kBoards;
    if (header->keys[index].load(std::memory_order_acquire) == key) {
      return BoardRef(segment, index);
    }
  }
  return {};
}

void FailBoard(const BoardRef& own, const std::string& error) {
  Write(own->description, error);
  own->outcome.store(kFailed, std::memory_order_release);
}

std::string PublishedTexts(char* segment) {
  SegmentHeader* header = Header(segment);
  std::string texts;
  for (size_t i = 0; i < kBoards; ++i) {
    const BoardRef board(segment, i);
    const bool waiting = header->keys[i].load(std::memory_order_acquire) != 0 &&
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
  SegmentHeader* header = Header(own_segment);
  Write(header->farewell, reason);
  header->leaving.store(true, std::memory_order_release);
}

Health HealthOf(char* segment, bool watched) {
  const SegmentHeader* header = Header(segment);
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
  const SegmentHeader* header = Header(segment);
  return header->start_time != 0 && StatusOf(header->pid).start_time == header->start_time;
}

void ForgetSegment(char* own_segment) { delete Header(own_segment)->ledger; }

}  // namespace pccl
