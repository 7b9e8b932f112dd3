#include "rlx/cli/cli.h"

#include <cstdio>
#include <new>

#include "rlx/base/parallel.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/tool.h"
#include "rlx/version.h"

namespace rlx::cli {

namespace {

// The commands in the order of the help.
constexpr void (*kCommands[])(Cli&) = {add_ops, add_print, add_verify, add_opt,
                                       add_run, add_train, add_bench};

int report(const std::string& message, int status) {
  fmt::print(stderr, "rlx: {}\n", message);
  return status;
}

int run_action(const std::function<void()>& action) {
  try {
    action();
    if (std::fflush(stdout) != 0) return report("error: cannot write to stdout", 1);
    return 0;
  } catch (const Error& e) {
    if (interrupted() && e.code() == "cancelled") return report("interrupted", 130);
    return report(fmt::format("error: {}", e.what()), 1);
  } catch (const std::bad_alloc&) {
    return report("error: out of memory", 1);
  } catch (const std::exception& e) {
    return report(fmt::format("error: {}", e.what()), 1);
  }
}

}  // namespace

Cli::Cli() : app("RLX: a compiler and runtime for tensor programs.", "rlx") {
  app.set_version_flag("--version", std::string("rlx " RLX_VERSION));
  app.add_option("--seed", globals.seed, "Seed of everything random")->capture_default_str();
  app.add_option("--threads", globals.threads, "Threads to use; 0: all of the machine")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.require_subcommand(0, 1);  // none: the help
  app.footer(
      "`rlx COMMAND --help` says more and gives an example; --seed and --threads work with every "
      "command.");
}

CLI::App* Cli::command(const std::string& name, const std::string& doc, const std::string& example,
                       CLI::App* parent) {
  CLI::App* sub = (parent ? parent : &app)->add_subcommand(name, doc);
  sub->fallthrough();
  sub->footer("Example:\n  " + example);
  return sub;
}

int thread_count(const Globals& globals) {
  return globals.threads > 0 ? globals.threads : hardware_threads();
}

Device default_device() { return is_available(Device::cpu) ? Device::cpu : Device::reference; }

int run(const std::vector<std::string>& args) {
  Cli cli;
  for (auto add : kCommands) add(cli);
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // what CLI11 asks for
  try {
    cli.app.parse(reversed);
  } catch (const CLI::Success& e) {
    return cli.app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    cli.app.exit(e);
    return 2;
  }
  if (!cli.action) {
    fmt::print(stderr, "{}", cli.app.help());
    return 2;
  }
  const InterruptScope scope;
  return run_action(cli.action);
}

}  // namespace rlx::cli
