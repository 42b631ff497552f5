;;;; Computes a Fibonacci number again and again, each time as a task of its own.
;;;;
;;;; Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

(load (merge-pathnames "../tasks.lisp" *load-truename*))

(declaim (optimize (speed 2))
         (ftype (function (fixnum) fixnum) fib))

(defun fib (n)
  (if (< n 2)
      n
      (+ (fib (- n 1)) (fib (- n 2)))))

(defun main ()
  (parse-mode)
  (let ((work (number-argument "--work" 20000))
        (size (number-argument "--size" 16)))
    (flet ((compute (number)
             (declare (ignore number))
             (fib size)))
      (measure work (lambda () (reduce #'+ (map-tasks #'compute work)))))))
