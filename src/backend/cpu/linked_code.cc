#include "rlx/backend/cpu/linked_code.h"

#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/Support/Memory.h>
#include <llvm/Support/Process.h>

#include "rlx/backend/cpu/llvm_error.h"

namespace rlx::cpu {
namespace {

namespace jitlink = llvm::jitlink;
using llvm::orc::ExecutorAddr;

// Pages for the sections of one object, side by side, so that code reaches its constants.
class Memory final : public jitlink::JITLinkMemoryManager {
 public:
  explicit Memory(std::vector<LinkedCode::Pages>& pages) : pages_(pages) {}

  void allocate(const jitlink::JITLinkDylib*, jitlink::LinkGraph& graph,
                OnAllocatedFunction done) override {
    jitlink::BasicLayout layout(graph);
    const uint64_t page = llvm::sys::Process::getPageSizeEstimate();
    auto sizes = layout.getContiguousPageBasedLayoutSizes(page);
    if (!sizes) return done(sizes.takeError());
    pages_.reserve(pages_.size() + 1);
    std::error_code failed;
    const llvm::sys::MemoryBlock block = llvm::sys::Memory::allocateMappedMemory(
        sizes->total(), nullptr, llvm::sys::Memory::MF_READ | llvm::sys::Memory::MF_WRITE, failed);
    if (failed) return done(llvm::errorCodeToError(failed));
    pages_.push_back({block.base(), block.allocatedSize()});  // zero, and ours from here on
    auto in_flight = std::make_unique<InFlight>();
    char* at = static_cast<char*>(block.base());
    for (auto& [group, segment] : layout.segments()) {
      segment.WorkingMem = at;
      segment.Addr = ExecutorAddr::fromPtr(at);
      const uint64_t bytes = llvm::alignTo(segment.ContentSize + segment.ZeroFillSize, page);
      in_flight->segments.emplace_back(llvm::sys::MemoryBlock(at, bytes),
                                       llvm::orc::toSysMemoryProtectionFlags(group.getMemProt()));
      at += bytes;
    }
    if (llvm::Error e = layout.apply()) return done(std::move(e));
    done(std::move(in_flight));
  }

  // Pages go with the LinkedCode.
  void deallocate(std::vector<FinalizedAlloc> allocations, OnDeallocatedFunction done) override {
    for (FinalizedAlloc& a : allocations) a.release();
    done(llvm::Error::success());
  }

 private:
  struct InFlight final : InFlightAlloc {
    std::vector<std::pair<llvm::sys::MemoryBlock, unsigned>> segments;
    void finalize(OnFinalizedFunction done) override {
      for (const auto& [block, protection] : segments) {
        if (const auto e = llvm::sys::Memory::protectMappedMemory(block, protection))
          return done(llvm::errorCodeToError(e));
        if (protection & llvm::sys::Memory::MF_EXEC)
          llvm::sys::Memory::InvalidateInstructionCache(block.base(), block.allocatedSize());
      }
      done(FinalizedAlloc(ExecutorAddr::fromPtr(segments.front().first.base())));
    }
    void abandon(OnAbandonedFunction done) override { done(llvm::Error::success()); }
  };

  std::vector<LinkedCode::Pages>& pages_;
};

class Context final : public jitlink::JITLinkContext {
 public:
  Context(Memory& memory, LinkedCode::Resolve resolve, llvm::Error& failure,
          FunctionRef<void(std::string_view, void*)> found)
      : JITLinkContext(nullptr),
        memory_(memory),
        resolve_(resolve),
        failure_(failure),
        found_(found) {}

  jitlink::JITLinkMemoryManager& getMemoryManager() override { return memory_; }
  void notifyFailed(llvm::Error e) override {
    failure_ = llvm::joinErrors(std::move(failure_), std::move(e));
  }
  void lookup(const LookupMap& symbols,
              std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> then) override {
    jitlink::AsyncLookupResult result;
    for (const auto& [name, flags] : symbols) {
      void* const address = resolve_({name.data(), name.size()});
      if (!address && flags == jitlink::SymbolLookupFlags::RequiredSymbol)
        return then->run(llvm::createStringError("the symbol " + name.str() + " is not known"));
      result[name] = {ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    then->run(std::move(result));
  }
  llvm::Error notifyResolved(jitlink::LinkGraph& graph) override {
    for (const jitlink::Symbol* s : graph.defined_symbols())
      if (s->hasName() && s->getScope() == jitlink::Scope::Default)
        found_({s->getName().data(), s->getName().size()}, s->getAddress().toPtr<void*>());
    return llvm::Error::success();
  }
  void notifyFinalized(jitlink::JITLinkMemoryManager::FinalizedAlloc allocation) override {
    allocation.release();
  }

 private:
  Memory& memory_;
  LinkedCode::Resolve resolve_;
  llvm::Error& failure_;
  FunctionRef<void(std::string_view, void*)> found_;
};

}  // namespace

void LinkedCode::add(std::span<const char> object,
                     FunctionRef<void(std::string_view, void*)> found) {
  Memory memory(pages_);
  llvm::Error failure = llvm::Error::success();
  auto graph = require(jitlink::createLinkGraphFromObject(
      llvm::MemoryBufferRef({object.data(), object.size()}, "rlx")));
  jitlink::link(std::move(graph), std::make_unique<Context>(memory, resolve_, failure, found));
  require(std::move(failure));
}

int64_t LinkedCode::bytes() const {
  int64_t sum = 0;
  for (const Pages& p : pages_) sum += static_cast<int64_t>(p.bytes);
  return sum;
}

LinkedCode::~LinkedCode() {
  for (const Pages& p : pages_) {
    llvm::sys::MemoryBlock block(p.begin, p.bytes);
    [[maybe_unused]] const std::error_code failed =  // nobody to tell
        llvm::sys::Memory::releaseMappedMemory(block);
  }
}

}  // namespace rlx::cpu
