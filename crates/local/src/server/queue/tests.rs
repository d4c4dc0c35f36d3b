//! Tests: round-robin order, limits, and abandoned jobs.

use std::sync::Arc;

use super::*;

struct Job {
    name: &'static str,
    is_abandoned: bool,
}

impl QueuedJob for Job {
    fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }
}

fn job(name: &'static str) -> Job {
    Job { name, is_abandoned: false }
}

fn abandoned_job(name: &'static str) -> Job {
    Job { name, is_abandoned: true }
}

fn root(name: &str) -> Client {
    Client::Root(name.to_owned())
}

fn pop_names(queue: &FairQueue<Job>, count: usize) -> Vec<&'static str> {
    (0..count).filter_map(|_| queue.pop()).map(|job| job.name).collect()
}

#[test]
fn clients_are_served_round_robin() {
    let queue = FairQueue::new(16);
    for name in ["a1", "a2", "a3", "a4"] {
        queue.push(root("a"), job(name)).unwrap();
    }
    queue.push(root("b"), job("b1")).unwrap();
    queue.push(Client::Connection(1), job("c1")).unwrap();
    queue.push(Client::Connection(1), job("c2")).unwrap();
    assert_eq!(pop_names(&queue, 7), ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]);
}

#[test]
fn served_client_goes_to_the_end_of_the_rotation() {
    let queue = FairQueue::new(16);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(pop_names(&queue, 1), ["a1"]);
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(pop_names(&queue, 2), ["b1", "a2"]);
}

#[test]
fn full_queue_rejects_jobs() {
    let queue = FairQueue::new(2);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(queue.push(root("c"), job("c1")), Err(QueueRejection::Full));
    assert_eq!(pop_names(&queue, 1), ["a1"]);
    assert_eq!(queue.push(root("c"), job("c1")), Ok(()));
}

#[test]
fn client_share_leaves_space_for_others() {
    let queue = FairQueue::new(4);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(queue.push(root("a"), job("a3")), Err(QueueRejection::ClientShareFull));
    assert_eq!(queue.push(root("b"), job("b1")), Ok(()));
}

#[test]
fn abandoned_jobs_are_skipped_and_not_counted() {
    let queue = FairQueue::new(2);
    queue.push(root("a"), abandoned_job("a1")).unwrap();
    queue.push(root("b"), abandoned_job("b1")).unwrap();
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(queue.queued_jobs(), 1);
    queue.push(root("b"), abandoned_job("b2")).unwrap();
    queue.push(root("b"), job("b3")).unwrap();
    assert_eq!(pop_names(&queue, 2), ["a2", "b3"]);
}

#[test]
fn close_returns_queued_jobs_and_unblocks_the_worker() {
    let queue = Arc::new(FairQueue::new(4));
    let worker = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.pop().is_none()
    });
    let returned = queue.close();
    assert!(returned.is_empty() && worker.join().unwrap());
    assert_eq!(queue.push(root("a"), job("a1")), Err(QueueRejection::Closed));

    let queue = FairQueue::new(4);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(queue.close().len(), 2);
    assert!(queue.pop().is_none());
}
