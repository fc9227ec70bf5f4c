#include "ffi/transport/mpi.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace pccl {

MpiTransport::MpiTransport(const World& world, const Team& team, int first_tag)
    : world_(world),
      team_(team),
      first_tag_(first_tag),
      sending_(team.process_of.size()),
      incoming_(team.process_of.size()) {}

MpiTransport::~MpiTransport() { Cancel(); }

// Sender and receiver both count: two ranks of a process may wait for different rounds of the
// same peer at once.
int MpiTransport::Tag(const Message& message) const {
  const int64_t pair = team_.local_index[static_cast<size_t>(message.sender)] * team_.width +
                       team_.local_index[static_cast<size_t>(message.receiver)];
  return first_tag_ + static_cast<int>(pair);
}

int MpiTransport::Peer(int64_t rank) const {
  const auto process = static_cast<size_t>(team_.process_of[static_cast<size_t>(rank)]);
  return static_cast<int>(world_.mpi_rank[process]);
}

void MpiTransport::Send(const Message& message, const ByteStream& bytes) {
  std::vector<Segment>& sending = sending_[static_cast<size_t>(message.sender)];
  for (size_t begin = 0; begin < bytes.nbytes(); begin += kSegmentBytes) {
    Segment segment;
    segment.begin = begin;
    segment.end = std::min(bytes.nbytes(), begin + kSegmentBytes);
    const char* data = bytes.Contiguous(segment.begin, segment.end);
    if (data == nullptr) {
      segment.staged = Scratch(segment.end - segment.begin);
      bytes.ForRuns(segment.begin, segment.end, [&](const ByteStream::Run& run, size_t offset) {
        std::memcpy(segment.staged.data() + offset, bytes.at(run), run.nbytes);
      });
      data = segment.staged.data();
    }
    segment.request = world_.mpi->Isend(data, segment.end - segment.begin, Peer(message.receiver),
                                        Tag(message), world_.comm);
    sending.push_back(std::move(segment));
  }
}

bool MpiTransport::Sent(int64_t rank, int64_t) {
  std::vector<Segment>& sending = sending_[static_cast<size_t>(rank)];
  while (!sending.empty() && world_.mpi->Test(&sending.back().request)) sending.pop_back();
  return sending.empty();
}

void MpiTransport::PostReceives(const Message& message, const Sink& sink, Incoming* incoming) {
  *incoming = Incoming();
  incoming->round = message.round;
  incoming->sender = message.sender;
  for (size_t begin = 0; begin < sink.nbytes; begin += kSegmentBytes) {
    Segment segment;
    segment.begin = begin;
    segment.end = std::min(sink.nbytes, begin + kSegmentBytes);
    char* data = sink.place(segment.begin, segment.end);
    if (data == nullptr) {
      segment.staged = Scratch(segment.end - segment.begin);
      data = segment.staged.data();
    }
    segment.request = world_.mpi->Irecv(data, segment.end - segment.begin, Peer(message.sender),
                                        Tag(message), world_.comm);
    incoming->segments.push_back(std::move(segment));
  }
}

Delivery MpiTransport::Receive(const Message& message, const Sink& sink) {
  Incoming& incoming = incoming_[static_cast<size_t>(message.receiver)];
  if (incoming.round != message.round) PostReceives(message, sink, &incoming);
  Delivery delivery = Delivery::kNothing;
  while (incoming.taken < incoming.segments.size()) {
    Segment& segment = incoming.segments[incoming.taken];
    if (!world_.mpi->Test(&segment.request)) return delivery;
    if (segment.staged.data() != nullptr) {
      sink.take(segment.begin, segment.end, segment.staged.data());
      segment.staged = Scratch();
    }
    ++incoming.taken;
    delivery = Delivery::kSome;
  }
  return Delivery::kAll;
}

void MpiTransport::Cancel() {
  for (Incoming& incoming : incoming_) {
    for (size_t i = incoming.taken; i < incoming.segments.size(); ++i) {
      try {
        world_.mpi->CancelReceive(&incoming.segments[i].request);
      } catch (const std::exception&) {
        // The library is already failing; the error that led here is the one to report.
      }
    }
    incoming = Incoming();
  }
  // A send cannot be taken back. Staged copies are kept alive for it, for good.
  for (std::vector<Segment>& sending : sending_) {
    for (Segment& segment : sending) new Scratch(std::move(segment.staged));
    sending.clear();
  }
}

std::string MpiTransport::WaitingFor() const {
  std::string text;
  for (const Incoming& incoming : incoming_) {
    if (incoming.taken == incoming.segments.size()) continue;
    const int64_t process = team_.process_of[static_cast<size_t>(incoming.sender)];
    text += (text.empty() ? "for a message of process " : ", of process ") +
            std::to_string(process) + " (round " + std::to_string(incoming.round) + ")";
  }
  return text;
}

}  // namespace pccl
