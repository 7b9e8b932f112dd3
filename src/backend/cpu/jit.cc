#include "rlx/backend/cpu/jit.h"

#include <dlfcn.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <atomic>
#include <cctype>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "code_version.h"
#include "rlx/backend/cpu/code_cache.h"
#include "rlx/backend/cpu/linked_code.h"
#include "rlx/backend/cpu/llvm_emitter.h"
#include "rlx/backend/cpu/llvm_error.h"
#include "rlx/backend/cpu/vector_math.h"
#include "rlx/base/file.h"

namespace rlx::cpu {
namespace {

// When memory runs out. LLVM is built without exceptions, yet they pass through it: std::bad_alloc of
// an allocation in its code, and what the two handlers below throw instead of ending the process.
// Nothing of LLVM is cleaned up on the way, so its objects are left in the middle of a change, which
// their destructors do not survive. Therefore what LLVM has made is deleted only when all went well,
// through plain pointers, and else abandoned: that memory is lost, and the next compilation, which
// makes objects of its own, is right.

void on_bad_alloc(void*, const char*, bool) { throw std::bad_alloc(); }
void on_fatal_error(void*, const char* reason, bool) {
  fail(ErrorKind::device, "llvm", "LLVM: {}", reason);
}

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_bad_alloc_error_handler(on_bad_alloc);
    llvm::install_fatal_error_handler(on_fatal_error);
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

const llvm::StringMap<bool>& host_features() {
  static const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features;
}

bool host_has(std::initializer_list<const char*> names) {
  for (const char* n : names)
    if (!host_features().lookup(n)) return false;
  return true;
}

// The host's features; for 256-bit vectors without any AVX-512, so that a narrow build is what a
// narrow CPU runs.
std::string feature_string(int vector_bits) {
  std::vector<std::string> list;
  for (const auto& f : host_features()) {
    bool evex = f.getKey().starts_with("avx512") || f.getKey().starts_with("avx10") ||
                f.getKey() == "evex512";
    bool on = f.getValue() && !(evex && vector_bits < 512);
    list.push_back((on ? "+" : "-") + f.getKey().str());
  }
  std::sort(list.begin(), list.end());
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : ",") + s;
  return out;
}

std::string symbol_for(const codegen::Kernel& kernel, int64_t number) {
  std::string name = "rlx_" + std::to_string(number) + "_";
  for (char c : kernel.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// What generated code calls: our functions, and those of the C library that LLVM makes calls of by itself.
void* address_of(std::string_view symbol) {
  for (const MathSymbol& s : math_symbols())
    if (symbol == s.name) return s.address;
  if (symbol == "fmodf")
    return reinterpret_cast<void*>(static_cast<float (*)(float, float)>(&::fmodf));
  if (symbol == "fmod")
    return reinterpret_cast<void*>(static_cast<double (*)(double, double)>(&::fmod));
  if (symbol == "memset") return reinterpret_cast<void*>(&::memset);
  if (symbol == "memcpy") return reinterpret_cast<void*>(&::memcpy);
  return ::dlsym(RTLD_DEFAULT, std::string(symbol).c_str());
}

struct Job {
  std::span<const codegen::Kernel* const> kernels;
  std::vector<std::string> symbols;
  llvm::SmallVector<char, 0> object;
  bool generated = false;  // not found in the cache
  std::exception_ptr error;
};

}  // namespace

int host_vector_bits() {
  if (host_has({"avx512f", "avx512bw", "avx512dq", "avx512vl"})) return 512;
  return host_has({"avx2", "fma", "f16c"}) ? 256 : 0;
}

std::string host_cpu_name() { return llvm::sys::getHostCPUName().str(); }

struct CpuJit::Impl {
  CpuJitOptions options;
  LinkedCode code{address_of};
  std::string triple, cpu, features;
  int64_t compiled = 0, generated = 0;

  explicit Impl(CpuJitOptions o) : options(std::move(o)) {
    initialise_llvm();
    int widest = host_vector_bits();
    if (options.vector_bits == 0) options.vector_bits = widest;
    bool known = options.vector_bits == 256 || options.vector_bits == 512;
    user_check(known && options.vector_bits <= widest, "vector-bits",
               "vectors of {} bits: this CPU ({}) has {}", options.vector_bits, host_cpu_name(),
               widest);
    triple = llvm::sys::getProcessTriple();
    cpu = host_cpu_name();
    features = feature_string(options.vector_bits);
  }
  Impl(const Impl&) = delete;

  llvm::TargetMachine* target_machine() const {
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target) fail(ErrorKind::device, "llvm", "LLVM: {}", error);
    llvm::TargetOptions o;
    o.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    return target->createTargetMachine(triple, cpu, features, o, llvm::Reloc::PIC_,
                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less,
                                       /*JIT=*/true);
  }

  void dump(llvm::TargetMachine& machine, const llvm::Module& module,
            const std::string& name) const {
    make_folder(options.dump_directory);
    const std::string path = options.dump_directory + "/" + name;
    std::string text;
    llvm::raw_string_ostream ir(text);
    module.print(ir, nullptr);
    write_file(path + ".ll", text);
    llvm::SmallVector<char, 0> code;
    llvm::raw_svector_ostream assembly(code);
    llvm::Module* copy = llvm::CloneModule(module).release();
    generate(machine, *copy, assembly, llvm::CodeGenFileType::AssemblyFile);
    delete copy;
    write_file(path + ".s", {code.data(), code.size()});
  }

  static void generate(llvm::TargetMachine& machine, llvm::Module& module,
                       llvm::raw_pwrite_stream& out, llvm::CodeGenFileType type) {
    auto* passes = new llvm::legacy::PassManager;
    if (machine.addPassesToEmitFile(*passes, out, nullptr, type, /*DisableVerify=*/true))
      fail(ErrorKind::device, "llvm", "LLVM: this target cannot emit code");
    passes->run(module);
    delete passes;
  }

  // Everything that the code of a job depends on.
  std::string key_of(const Job& job) const {
    std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", RLX_CODE_VERSION, LLVM_VERSION_STRING,
                                  triple, cpu, features, options.vector_bits);
    for (size_t i = 0; i < job.kernels.size(); ++i)
      key += job.symbols[i] + "\n" + codegen::structure_bytes(*job.kernels[i]);
    return key;
  }

  // Through the cache, unless somebody wants to see how the code is made.
  void make(Job& job) const {
    CodeCache* const cache = options.dump_directory.empty() ? options.cache : nullptr;
    const std::string key = cache ? key_of(job) : "";
    if (cache)
      if (const std::optional<std::string> code = cache->load(key)) {
        job.object.assign(code->begin(), code->end());
        return;
      }
    compile(job);
    job.generated = true;
    if (cache) cache->store(key, {job.object.data(), job.object.size()});
  }

  void compile(Job& job) const {
    llvm::TargetMachine* machine = target_machine();
    auto* context = new llvm::LLVMContext;
    auto* module = new llvm::Module(job.symbols.front(), *context);
    module->setTargetTriple(triple);
    module->setDataLayout(machine->createDataLayout());
    for (size_t i = 0; i < job.kernels.size(); ++i)
      emit_kernel(*job.kernels[i], *module, job.symbols[i], {options.vector_bits});
    std::string text;
    llvm::raw_string_ostream problem(text);
    check(!llvm::verifyModule(*module, &problem), "emitter made invalid IR: {}", problem.str());
    if (!options.dump_directory.empty()) dump(*machine, *module, job.symbols.front());
    llvm::raw_svector_ostream out(job.object);
    generate(*machine, *module, out, llvm::CodeGenFileType::ObjectFile);
    delete module;
    delete context;
    delete machine;
  }

  // Runs all jobs, `threads` at a time where the system has them; the first job's error (in order) is
  // thrown.
  void compile_all(std::vector<Job>& jobs) const {
    const size_t threads =
        std::min(static_cast<size_t>(std::max(options.compile_threads, 1)), jobs.size());
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < jobs.size();) {
        try {
          make(jobs[i]);
        } catch (...) {
          jobs[i].error = std::current_exception();
        }
      }
    };
    std::vector<std::jthread> helpers;
    try {
      while (helpers.size() + 1 < threads) helpers.emplace_back(work);
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): fewer do the same work
    }
    work();
    helpers.clear();
    for (Job& j : jobs)
      if (j.error) std::rethrow_exception(j.error);
  }

  std::vector<KernelFn> compile(std::span<const codegen::Kernel* const> kernels) {
    for (const codegen::Kernel* k : kernels) codegen::verify(*k);
    size_t per_module = std::max(options.kernels_per_module, 1);
    std::vector<Job> jobs;
    for (size_t i = 0; i < kernels.size(); i += per_module) {
      Job& job = jobs.emplace_back();
      job.kernels = kernels.subspan(i, std::min(per_module, kernels.size() - i));
      for (const codegen::Kernel* k : job.kernels)
        job.symbols.push_back(symbol_for(*k, compiled++));
    }
    compile_all(jobs);
    std::vector<KernelFn> out;
    for (const Job& j : jobs) {
      if (j.generated) generated += static_cast<int64_t>(j.kernels.size());
      std::unordered_map<std::string, KernelFn> found;
      code.add({j.object.data(), j.object.size()}, [&](std::string_view symbol, void* address) {
        found.emplace(symbol, reinterpret_cast<KernelFn>(address));
      });
      for (const std::string& s : j.symbols) {
        const auto at = found.find(s);
        check(at != found.end(), "the code of {} is not there", s);
        out.push_back(at->second);
      }
    }
    return out;
  }
};

CpuJit::CpuJit(CpuJitOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
CpuJit::~CpuJit() = default;
CpuJit::CpuJit(CpuJit&&) noexcept = default;
CpuJit& CpuJit::operator=(CpuJit&&) noexcept = default;

std::vector<KernelFn> CpuJit::compile(std::span<const codegen::Kernel* const> kernels) {
  return impl_->compile(kernels);
}
int CpuJit::vector_bits() const { return impl_->options.vector_bits; }
int64_t CpuJit::resident_bytes() const { return impl_->code.bytes(); }
int64_t CpuJit::generated() const { return impl_->generated; }

}  // namespace rlx::cpu
