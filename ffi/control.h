// Small messages between processes beside the data: agreeing on a call, and giving up together.
#ifndef PCCL_FFI_CONTROL_H_
#define PCCL_FFI_CONTROL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ffi/shared/board.h"
#include "ffi/team.h"
#include "ffi/world.h"

namespace pccl {

// The tag of control messages; data uses tags from kFirstDataTag.
constexpr int kControlTag = 0;
constexpr int kFirstDataTag = 64;

// A hello is answered with a verdict, but in an ordered world, where it goes to a neighbour.
// kWaiting says what a process has been waiting for long, or with an empty text that it no longer
// is; kFarewell that it takes part in nothing any more, and why; kRevoke that the world must not be
// used any more.
enum class ControlKind : int32_t { kHello = 1, kVerdict, kAbort, kWaiting, kFarewell, kRevoke };

struct ControlMessage {
  uint64_t key = 0;
  int64_t source = 0;  // process
  ControlKind kind = ControlKind::kHello;
  int32_t tag = -1;        // of a verdict: the first data tag, or -1 for disagreement
  uint64_t signature = 0;  // of a hello
  uint64_t free_tags = 0;  // of a hello: bit i, whether candidate i is unused here
  char text[kDescription] = {};
};

// What a world keeps of its messages.
std::shared_ptr<Mail> MakeMail();

// Sends without waiting. Throws std::runtime_error where MPI fails.
void SendControl(const World& world, int64_t process, const ControlMessage& message);
// Sends a text to those of the processes that are others.
void SendText(const World& world, const std::vector<int64_t>& processes, ControlKind kind,
              uint64_t key, const std::string& text);
// Receives whatever has come. Messages wait, by key, until somebody takes them. Returns at once
// where another thread is receiving, unless it `must`.
void PollControl(const World& world, bool must = false);
// Takes a message of this key and kind, if one has come.
bool TakeControl(const World& world, uint64_t key, ControlKind kind, ControlMessage* message);
// Whether another process can take part, as far as it or the kernel has told us.
Health PeerHealth(const World& world, int64_t process);
// What another process is doing or what keeps it, for people: ", which is stopped".
std::string PeerNews(const World& world, int64_t process);

// Lets other calls have the tags that a handshake took.
void ReleaseTags(const World& world, int first_tag);
// Says, here and to the other processes, that an ordered world is not to be used any more: after a
// failure nobody knows which call of one process belongs to which of another.
void Revoke(const World& world, const std::string& why);
// Why the world is not to be used any more, or "".
std::string Revoked(const World& world);

// Do all processes of the team mean the same collective? Not thread safe.
class Agreement {
 public:
  virtual ~Agreement() = default;
  // Does what can be done now; returns whether anything was.
  virtual bool Advance() = 0;
  virtual bool complete() const = 0;
  // Messages may use the tags [first_tag, first_tag + width * width), on all processes of the team.
  virtual int first_tag() const = 0;
  // The processes that are waited for.
  virtual std::vector<int64_t> Awaited() const = 0;
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

// On a call site's first execution, with the question which tags its messages use: every process
// sends its signature to the first one, which compares and answers.
class Handshake : public Agreement {
 public:
  // `signature` must be equal on all processes; `description` explains it to people.
  Handshake(const World& world, const Team& team, uint64_t key, uint64_t signature,
            std::string description);

  bool Advance() override;
  bool complete() const override { return tag_ >= 0; }
  int first_tag() const override { return tag_; }
  // All that have not come; of all but the first process, that one.
  std::vector<int64_t> Awaited() const override;

 private:
  bool leads() const { return team_.processes[0] == world_.process; }
  void SayHello();
  bool HearHellos();
  bool HearVerdict();
  void Announce();

  const World& world_;
  const Team& team_;
  const uint64_t key_, signature_;
  const std::string description_;
  bool started_ = false;
  std::map<int64_t, ControlMessage> hellos_;  // by process, of the leader
  int tag_ = -1;
};

// On every execution in an ordered world, where no call site knows which one it meets: each process
// compares with the one before it. So all are equal where nobody finds a difference, for one
// message each, however many there are. `key` is the number of the execution.
class NeighbourCheck : public Agreement {
 public:
  NeighbourCheck(const World& world, const Team& team, uint64_t key, uint64_t signature,
                 std::string description);

  bool Advance() override;
  bool complete() const override { return complete_; }
  int first_tag() const override;
  std::vector<int64_t> Awaited() const override;

 private:
  int64_t Neighbour(size_t steps) const;

  const World& world_;
  const Team& team_;
  const uint64_t key_, signature_;
  const std::string description_;
  bool started_ = false, complete_ = false;
};

}  // namespace pccl

#endif  // PCCL_FFI_CONTROL_H_
