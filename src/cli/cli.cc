#include "rlx/cli/cli.h"

#include <new>

#include "rlx/base/parallel.h"
#include "rlx/base/suggest.h"
#include "rlx/cli/input.h"
#include "rlx/cli/interrupt.h"
#include "rlx/cli/output.h"
#include "rlx/cli/tool.h"
#include "rlx/version.h"

namespace rlx::cli {

namespace {

// The commands in the order of the help.
constexpr void (*kCommands[])(Cli&) = {add_ops,      add_print, add_verify,  add_opt,   add_lower,
                                       add_quantise, add_run,   add_explain, add_train, add_bench};

int report(std::string_view message, int status) {
  note("rlx: {}\n", message);
  return status;
}

int run_action(const std::function<void()>& action) {
  try {
    action();
    flush_output();
    return 0;
  } catch (const Error& e) {
    if (interrupted() && e.code() == "cancelled")
      return report(interrupt_name(), interrupt_status());
    return report(fmt::format("error: {}", e.text()), 1);
  } catch (const std::bad_alloc&) {
    return report("error: out of memory", 1);
  } catch (const std::exception& e) {
    return report(fmt::format("error: {}", e.what()), 1);
  }
}

// The command that the words got to, at most a command of a command.
const CLI::App& chosen(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.back());
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() ? path_of(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// What is wrong with a word that no command or option knows.
std::string unexpected(const CLI::App& app, const std::string& word) {
  const CLI::App& command = chosen(app);
  const bool is_option = word.starts_with('-');
  std::vector<std::string> names;
  for (const CLI::App* c = &command; c && is_option; c = c->get_parent())
    for (const CLI::Option* o : c->get_options()) {
      for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
      for (const std::string& n : o->get_snames()) names.push_back("-" + n);
    }
  const auto commands = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* c : commands)
    if (!is_option) names.push_back(c->get_name());
  const std::string name = word.substr(0, word.find('='));
  const std::string hint = did_you_mean(name, {names.begin(), names.end()});
  if (is_option) return fmt::format("there is no option {}{}", name, hint);
  if (!commands.empty()) return fmt::format("there is no command {}{}", word, hint);
  // A second value behind an option that is given once for each.
  if (word.find('=') != std::string::npos)
    for (const CLI::Option* o : command.get_options())
      if (o->count() > 0 && o->get_items_expected_max() > 1)
        return fmt::format("{0} is one word too many; an option stands before each value: {1} {0}",
                           word, o->get_name());
  return fmt::format("{} is one word too many", word);
}

// What the parser of the command line says, in our words where it has none of a sentence.
std::string wrong_with(const CLI::ParseError& e) {
  std::string text = e.what();
  if (const size_t end = text.find(": At Most 1 required but received"); end != text.npos)
    return fmt::format("{} is given more than once", text.substr(0, end));
  return text;
}

int usage_error(const CLI::App& app, const CLI::ParseError& e) {
  const auto left = app.remaining(true);
  const bool extra = e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  return report(fmt::format("error: {} (see {} --help)",
                            extra && !left.empty() ? unexpected(app, left[0]) : wrong_with(e),
                            path_of(chosen(app))),
                2);
}

std::string version_text() {
  std::string out = "rlx " RLX_VERSION;
  for (const Device& d : available_devices())
    if (const std::string libraries = backend_for(d)->libraries(); !libraries.empty())
      out += "\n" + libraries;
  return out;
}

}  // namespace

Cli::Cli() : app("RLX: a compiler and runtime for tensor programs.", "rlx") {
  app.set_version_flag("--version", std::string(RLX_VERSION),
                       "Print the version and who answers for BLAS");
  app.add_option("--seed", globals.seed, "Seed of everything random")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  app.add_option("--threads", globals.threads, "Threads to use; 0: all of the machine")
      ->check(whole_number(0, 1024))
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

int run(const std::vector<std::string>& args) {
  Cli cli;
  for (auto add : kCommands) add(cli);
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // what CLI11 asks for
  try {
    cli.app.parse(reversed);
  } catch (const CLI::CallForVersion&) {
    return run_action([] { say("{}\n", version_text()); });
  } catch (const CLI::Success&) {  // --help
    return run_action([&] { say("{}", cli.app.help()); });
  } catch (const CLI::ParseError& e) {
    return usage_error(cli.app, e);
  } catch (const std::exception& e) {
    return report(fmt::format("error: {}", e.what()), 2);
  }
  if (!cli.action) {
    note("{}", cli.app.help());
    return 2;
  }
  const InterruptScope scope;
  return run_action(cli.action);
}

}  // namespace rlx::cli
