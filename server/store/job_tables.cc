#include "server/store/job_tables.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::server {
namespace {

// Of one table.
struct RowSql {
  std::string insert;
  std::string update;
  std::string remove;
  std::string remove_job;
  // Digests of one row, and of all rows of a job.
  std::string digest;
  std::string job_digests;
  // Numbers and records of a job.
  std::string read;
};

RowSql MakeSql(JobTable table) {
  const std::string_view name = Name(table);
  const char* const row = "job = ? AND number = ?";
  return {
      fmt::format(
          "INSERT INTO {} (record, digest, job, number) VALUES (?, ?, ?, ?)",
          name),
      fmt::format("UPDATE {} SET record = ?, digest = ? WHERE {}", name, row),
      fmt::format("DELETE FROM {} WHERE {}", name, row),
      fmt::format("DELETE FROM {} WHERE job = ?", name),
      fmt::format("SELECT digest FROM {} WHERE {}", name, row),
      fmt::format("SELECT digest FROM {} WHERE job = ?", name),
      fmt::format("SELECT number, record FROM {} WHERE job = ? ORDER BY number",
                  name),
  };
}

const RowSql& SqlOf(JobTable table) {
  static const auto all = [] {
    std::array<RowSql, std::size(kAllJobTables)> sql;
    for (const JobTable each : kAllJobTables) {
      sql[static_cast<size_t>(each)] = MakeSql(each);
    }
    return sql;
  }();
  return all[static_cast<size_t>(table)];
}

TableDigest& DigestOfTable(JobTable table, TableDigests* digests) {
  return (*digests)[std::string(Name(table))];
}

// Steps through digests of rows that change or go.
Status TakeOut(Database* db, Statement* rows, TableDigest* digest) {
  while (rows->Row()) digest->Remove(static_cast<uint64_t>(rows->Int(0)));
  return rows->ok() ? OkStatus() : db->Failed("reading", rows->code());
}

Status TakeOutRow(Database* db, const JobName& name, JobTable table,
                  int64_t number, TableDigests* digests) {
  Statement* const known = db->Prepared(SqlOf(table).digest);
  known->BindText(1, name);
  known->Bind(2, number);
  return TakeOut(db, known, &DigestOfTable(table, digests));
}

Status RemoveRow(Database* db, const JobName& name, const JobRowName& row,
                 TableDigests* digests) {
  LOCKSTEP_RETURN_IF_ERROR(
      TakeOutRow(db, name, row.table, row.number, digests));
  Statement* const remove = db->Prepared(SqlOf(row.table).remove);
  remove->BindText(1, name);
  remove->Bind(2, row.number);
  return db->Finish(remove);
}

Status WriteRow(Database* db, const JobName& name, const JobRow& row,
                TableDigests* digests) {
  if (!row.is_new) {
    LOCKSTEP_RETURN_IF_ERROR(
        TakeOutRow(db, name, row.table, row.number, digests));
  }
  const uint64_t digest =
      RowDigest(RowKey(name, std::to_string(row.number)), row.record);
  const RowSql& sql = SqlOf(row.table);
  Statement* const write = db->Prepared(row.is_new ? sql.insert : sql.update);
  write->Bind(1, row.record);
  write->Bind(2, static_cast<int64_t>(digest));
  write->BindText(3, name);
  write->Bind(4, row.number);
  DigestOfTable(row.table, digests).Add(digest);
  return db->Finish(write);
}

StatusOr<StoredVersion> ReadJob(Database* db, const JobName& name) {
  v1::StoredJob merged;
  StoredVersion version;
  for (const JobTable table : kAllJobTables) {
    Statement* const rows = db->Prepared(SqlOf(table).read);
    rows->BindText(1, name);
    Status status;
    while (rows->Row()) {
      if (table != JobTable::kJobs) {
        version.numbers[table].push_back(rows->Int(0));
      }
      if (status.ok()) status = AddRow(table, rows->Blob(1), &merged);
    }
    if (!rows->ok()) return db->Failed("reading", rows->code());
    LOCKSTEP_RETURN_IF_ERROR(status);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, DecodeJob(merged));
  if (job.spec.name != name) {
    return DataLoss("its spec is of job {}", job.spec.name);
  }
  version.job = std::make_shared<const Job>(std::move(job));
  return version;
}

}  // namespace

Status ForEachJob(Database* db,
                  const std::function<Status(const StoredVersion&)>& fn) {
  std::vector<JobName> names;
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT DISTINCT job FROM jobs ORDER BY job", [&](const Statement& row) {
        names.push_back(row.Text(0));
        return OkStatus();
      }));
  for (const JobName& name : names) {
    const auto version = ReadJob(db, name);
    if (!version.ok()) {
      return Annotate(version.status(),
                      fmt::format("{}: {}", db->path(), name));
    }
    LOCKSTEP_RETURN_IF_ERROR(fn(*version));
  }
  return OkStatus();
}

Status WriteRows(Database* db, const JobName& name, const JobChanges& changes,
                 TableDigests* digests) {
  for (const JobRowName& row : changes.removed) {
    LOCKSTEP_RETURN_IF_ERROR(RemoveRow(db, name, row, digests));
  }
  for (const JobRow& row : changes.written) {
    LOCKSTEP_RETURN_IF_ERROR(WriteRow(db, name, row, digests));
  }
  return OkStatus();
}

Status JobTables::Load(
    const std::function<void(std::shared_ptr<const Job>)>& fn) {
  stored_.clear();
  return ForEachJob(db_, [&](const StoredVersion& version) {
    stored_[version.job->spec.name] = version;
    fn(version.job);
    return OkStatus();
  });
}

const StoredVersion* JobTables::Find(const JobName& name) const {
  if (const auto it = pending_.find(name); it != pending_.end()) {
    return it->second ? &*it->second : nullptr;
  }
  const auto it = stored_.find(name);
  return it == stored_.end() ? nullptr : &it->second;
}

Status JobTables::DeleteRows(const JobName& name) {
  for (const JobTable table : kAllJobTables) {
    const RowSql& sql = SqlOf(table);
    Statement* const known = db_->Prepared(sql.job_digests);
    known->BindText(1, name);
    LOCKSTEP_RETURN_IF_ERROR(
        TakeOut(db_, known, &DigestOfTable(table, digests_)));
    Statement* const remove = db_->Prepared(sql.remove_job);
    remove->BindText(1, name);
    LOCKSTEP_RETURN_IF_ERROR(db_->Finish(remove));
  }
  return OkStatus();
}

Status JobTables::Put(const std::shared_ptr<const Job>& job) {
  const JobName& name = job->spec.name;
  const StoredVersion* const before = Find(name);
  // It may have rows all the same, if nothing was loaded.
  if (before == nullptr) LOCKSTEP_RETURN_IF_ERROR(DeleteRows(name));
  JobChanges changes = ChangesOf(before, *job);
  LOCKSTEP_RETURN_IF_ERROR(WriteRows(db_, name, changes, digests_));
  pending_[name] = StoredVersion{job, std::move(changes.numbers)};
  return OkStatus();
}

Status JobTables::Delete(const JobName& name) {
  pending_[name].reset();
  return DeleteRows(name);
}

void JobTables::EndTransaction(bool committed) {
  auto ended = std::exchange(pending_, {});
  if (!committed) return;
  for (auto& [name, version] : ended) {
    if (version) {
      stored_[name] = *std::move(version);
    } else {
      stored_.erase(name);
    }
  }
}

}  // namespace lockstep::server
