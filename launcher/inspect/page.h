// A run as one HTML file that needs nothing else: no network, no server.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/inspect/collectives.h"
#include "launcher/inspect/figures.h"

namespace accel {

/// What the page says beside the figures.
struct PageTexts {
  std::string run;
  std::string state;    ///< "over, exit status 80, mismatch"
  std::string verdict;  ///< the report; empty: none
  std::string tree;     ///< where the ranks stood; empty: not known
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> stragglers;
  int subject = -1;  ///< the world rank that the verdict is about; -1: none
};

/// Into how many parts the time of so many ranks is cut for a page.
std::size_t page_parts(std::size_t ranks);

/// Writes the page: all of the waiting as a heat map of page_parts() by rank, and the latest collectives one
/// by one, `most` of each rank. `figures` must have been made with page_parts(). Throws Failure where it
/// cannot be written.
void write_page(const std::string& path, Collectives& collectives, const Selection& selection,
                const Figures& figures, const PageTexts& texts, std::uint64_t most);

}  // namespace accel
