// Notice boards in shared memory: how processes of a host find each other's part of a collective.
#ifndef PCCL_FFI_SHARED_BOARD_H_
#define PCCL_FFI_SHARED_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pccl {

constexpr size_t kBoards = 1024;      // collectives in flight per process
constexpr size_t kMostSets = 16;      // of them, at most, those that have data in shared memory
constexpr size_t kSlots = 4;          // slots of a set: pieces in flight per collective
constexpr size_t kRuns = 32;          // contiguous pieces of memory that a board can tell of
constexpr size_t kDescription = 960;  // bytes of text

// What a board's owner has in shared memory.
// Only kHeld keeps its set until the collective is over, and sets come to be held in ascending
// order of the group's processes. So of two collectives none waits for a set that the other holds
// while that one waits for it, in whatever order processes start them, however few sets there are.
enum class Hold : uint32_t {
  kNone = 0,
  kFilling = 1,  // the owner is writing
  kStaged = 2,   // data in advance: peers may declare it held, the owner may take it away
  kHeld = 3,
};

// One process's part of one collective. Only the owner writes it, except `readers_left` and
// `hold`. Life: taken by the owner, published by storing its key, matched by peers with the same
// key; free again once every process, the owner too, has said that it will not look at it any more.
struct alignas(64) Board {
  uint64_t signature;  // hash of the description: equal on all peers, or it is an error
  char description[kDescription];
  // Where the owner's data is in its own memory, for peers that read it there: then the board needs
  // no slots. Settled once `filled` is not 0.
  struct Run {
    uint64_t address, nbytes;
  } runs[kRuns];
  alignas(64) std::atomic<int64_t> filled;   // pieces staged in the slots
  alignas(64) std::atomic<int64_t> reduced;  // pieces of which the owner's share is reduced
  alignas(64) std::atomic<int64_t> copied;   // pieces the owner has taken from all peers
  alignas(64) std::atomic<uint32_t> hold;    // number of the set << 2 | Hold
  std::atomic<int32_t> readers_left;
  std::atomic<int32_t> outcome;  // kOpen, kDone, or kFailed: then `description` says why
};

enum : int32_t { kOpen = 0, kDone = 1, kFailed = 2 };

class Ledger;

// What a segment holds: this, then `sets` x kSlots slots of `slot_bytes`.
struct SegmentHeader {
  int64_t pid;
  uint64_t start_time;  // of the process, as the kernel counts: with `pid` it names it for good
  uint64_t secret, secret_address;  // at this address of the process stands the secret, too
  Ledger* ledger;                   // an address of the owner's, for the owner
  std::atomic<bool> reads_peers;    // whether it can read the memory of all the host's processes
  size_t sets;
  size_t slot_bytes;
  std::atomic<bool> leaving;  // then `farewell` says why
  char farewell[kDescription];
  // A board is at most this far behind the place that its key hashes to.
  alignas(64) std::atomic<uint64_t> reach;
  alignas(64) std::atomic<uint64_t> keys[kBoards];  // of the boards; 0 where free
  Board boards[kBoards];
};

// The bytes of a segment that has room for about `data_bytes` of data.
size_t SegmentBytes(size_t data_bytes);
// Initialises a segment's memory, before anybody else maps it.
void FormatSegment(char* segment, size_t data_bytes);

// A view of one board of one segment. Cheap to copy.
class BoardRef {
 public:
  BoardRef() = default;
  BoardRef(char* segment, size_t index) : segment_(segment), index_(index) {}

  explicit operator bool() const { return segment_ != nullptr; }
  Board* operator->() const { return &header()->boards[index_]; }
  // Of the set that the board has; what is in it is only settled while the board is kHeld.
  char* slot(int64_t piece) const;
  Hold hold() const { return static_cast<Hold>((*this)->hold.load(std::memory_order_acquire) & 3); }
  // Keeps the data that is staged, for good. Returns whether the board is kHeld now.
  bool Secure() const;
  size_t slot_bytes() const { return header()->slot_bytes; }
  bool owner_reads_peers() const { return header()->reads_peers.load(std::memory_order_acquire); }
  int64_t owner_pid() const { return header()->pid; }
  // The description; of a board that may be changing under our eyes, so copied and cut.
  std::string Text() const;
  size_t index() const { return index_; }
  SegmentHeader* header() const { return reinterpret_cast<SegmentHeader*>(segment_); }

 private:
  char* segment_ = nullptr;
  size_t index_ = 0;
};

// Takes a free board of this process's own segment and publishes it; empty where all are in
// use. Thread safe within the process.
BoardRef PublishBoard(char* own_segment, uint64_t key, uint64_t signature,
                      const std::string& description, int32_t readers);
// Gives the own board, which has none, a set of slots: held at once where the board is `entitled`
// to one, because every process before its owner holds one already; else kFilling, until
// SayStaged. An entitled board may get one that another has only staged. Returns false where there
// is none. Thread safe within the process.
bool TakeSet(const BoardRef& own, bool entitled);
// Says that what has been filled may be read.
void SayStaged(const BoardRef& own);
// Gives up what is staged; what is held is given up when everybody has released the board.
void DropStaged(const BoardRef& own);
// The board that the owner of `segment` has published under `key`; empty where there is none.
BoardRef FindBoard(char* segment, uint64_t key);
// Says that the caller will not look at the board any more.
inline void ReleaseBoard(const BoardRef& board) {
  board->readers_left.fetch_sub(1, std::memory_order_acq_rel);
}
// Marks the caller's own board as failed, so that peers fail too instead of waiting.
void FailBoard(const BoardRef& own, const std::string& error);
// What the owner of `segment` is waiting in: descriptions of its published boards.
std::string PublishedTexts(char* segment);
// The error of two processes that have come to the same call with different signatures.
std::string Disagreement(int64_t process, const std::string& description, int64_t other,
                         const std::string& other_description);
// Says in the own segment that this process will take part in nothing any more.
void SayFarewell(char* own_segment, const std::string& reason);

// Whether a process can take part in a collective.
struct Health {
  bool gone = false;    // for good
  std::string trouble;  // "has ended", "is stopped", ..., or "" where nothing is known
};
// Of the owner of the segment. `watched`: whether the owner was Visible when it was well.
Health HealthOf(char* segment, bool watched);
// Whether this process sees the owner of the segment in /proc: not from another PID namespace.
bool Visible(char* segment);
// To be called before the owner unmaps its own segment.
void ForgetSegment(char* own_segment);

}  // namespace pccl

#endif  // PCCL_FFI_SHARED_BOARD_H_
